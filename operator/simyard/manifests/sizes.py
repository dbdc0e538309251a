# SPDX-License-Identifier: Apache-2.0
"""Admission policies that limit the size of free-form values: parameters, attributes and defaults can be any JSON.

A schema cannot limit such a value, and CEL has no function for the length of an object as JSON. So the policies compute
the *weight* of a value: the characters of its texts and names, plus 16 for each number, boolean and null, plus 2 to 4
for separators. JSON with the weight N mostly has N to 2 N bytes, and at most about 6 N (if all characters are escaped).

CEL has no recursion, so the expression contains :data:`MAX_DEPTH` levels one by one. A value weighs more than any limit
if it nests deeper, or if it has a list or object with more than :data:`MAX_MEMBERS` members. The limit for the depth
also protects all parsers of these objects from their recursion limits. If a value has more than about 20,000 parts, the
API server stops the evaluation and refuses the value with a message of its own. So the aggregated API itself weighs
parameters first, to answer with a better message (:func:`simyard.api.weights.weigh_value`).
"""

from __future__ import annotations

from simyard.api import names
from simyard.api.base import Json
from simyard.api.weights import (
    MAX_ATTRIBUTES_WEIGHT,
    MAX_DEFAULT_WEIGHT,
    MAX_DEPTH,
    MAX_MEMBERS,
    MAX_PARAMETERS_WEIGHT,
    REMEDY,
    SCALAR,
    TOO_DEEP,
)
from simyard.manifests.admission import build_binding, build_policy
from simyard.manifests.rbac import DEFAULT_ACCOUNTS, Accounts
from simyard_sites.kubernetes.resource import Resource

MAX_LABELS = 64
MAX_REFERENCES = 16
"""Maximum number of finalizers of an object, and maximum number of its owners."""


def build_weight(value: str, levels: int = MAX_DEPTH) -> str:
    """Return the CEL expression that computes the weight of the CEL expression ``value`` with ``levels`` levels."""
    if levels == 0:
        container = f"type({value}) == list || type({value}) == map ? {TOO_DEEP} : {SCALAR}"
    else:
        key, item = f"k{levels}", f"v{levels}"
        members = f"{value}.map({key}, [dyn(size({key}) + 4), {value}[{key}]])"
        items = f"type({value}) == list ? {value}.map({key}, [dyn(2), {key}]) : []"
        added = f".map({item}, int({item}[0]) + {build_weight(f'{item}[1]', levels - 1)}).sum() + 2"
        members = f"(type({value}) == map ? {members} : {items}){added}"
        # With more members, the evaluation would exceed the API server's cost limit.
        few = f"size({value}) > {MAX_MEMBERS} ? {MAX_PARAMETERS_WEIGHT} + size({value}) : {members}"
        container = f"type({value}) == map || type({value}) == list ? ({few}) : {SCALAR}"
    return f"(type({value}) == string ? size({value}) + 2 : {container})"


def _sum_over(items: str, item: str, value: str) -> str:
    """Return the CEL expression for the sum of ``value`` over the items of an optional list."""
    return f"{items}.orValue([]).map({item}, {value}).sum()"


def _weigh_default(item: str) -> str:
    return f"({item}.?default.hasValue() ? {build_weight(f'{item}.default')} : 0)"


def _weigh_field(field: str) -> str:
    path = f"object.spec.?{field}"
    return f"({path}.hasValue() ? {build_weight(f'object.spec.{field}')} : 0)"


def _build_limit(
    resource: Resource, field: str, expression: str, limit: int, remedy: str, exempt: str | None = None
) -> list[Json]:
    """Return the policy that limits a field of one kind, and its binding.

    Args:
        resource: Kind to limit.
        field: Path of the limited field, for errors.
        expression: CEL expression for the weight.
        limit: Maximum weight.
        remedy: Advice for users whose object is refused.
        exempt: Name of a user whose objects the policy does not check.
    """
    name = f"{resource.plural}-size.{names.GROUP}"
    conditions = [{"name": "of-a-new-spec", "expression": "oldObject == null || object.spec != oldObject.spec"}]
    if exempt is not None:
        conditions.append({"name": "by-a-user", "expression": f"request.userInfo.username != '{exempt}'"})
    spec: Json = {
        "matchConditions": conditions,
        "variables": [{"name": "weight", "expression": expression}],
        "validations": [
            {
                "expression": f"variables.weight < {TOO_DEEP}",
                "message": f"{field}: nests deeper than {MAX_DEPTH} levels: {remedy}",
            },
            {
                "expression": f"variables.weight <= {limit}",
                "messageExpression": (
                    f"'{field}: weighs ' + string(variables.weight) + ', at most {limit} is accepted"
                    f" (characters of texts and names, {SCALAR} for each number):"
                    f" {remedy}'"
                ),
            },
        ],
    }
    return [build_policy(name, resource, spec), build_binding(name)]


def _build_metadata_limits(operator: str) -> list[Json]:
    """Return the policy that limits the metadata of objects that users create, and its binding.

    The API server itself limits only annotations, to 256 KiB.
    """
    name = f"metadata-size.{names.GROUP}"
    kinds = (names.SERVICE_ACTIONS, names.WORKER_POOLS, names.WORKERS, names.SIMULATION_SERVICES)
    limits = {
        "labels": (MAX_LABELS, "{}"),
        "finalizers": (MAX_REFERENCES, "[]"),
        "ownerReferences": (MAX_REFERENCES, "[]"),
    }
    spec: Json = {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [names.GROUP],
                    "apiVersions": [names.VERSION],
                    "resources": [kind.plural for kind in kinds],
                    "operations": ["CREATE", "UPDATE"],
                }
            ]
        },
        # The operator is exempt: it creates thousands of Workers at once, and chooses their metadata itself.
        "matchConditions": [{"name": "by-a-user", "expression": f"request.userInfo.username != '{operator}'"}],
        "validations": [
            {
                "expression": f"size(object.metadata.?{field}.orValue({empty})) <= {limit}",
                "message": f"metadata.{field}: has more than {limit} entries: remove some",
            }
            for field, (limit, empty) in limits.items()
        ],
    }
    return [build_policy(name, names.SERVICE_ACTIONS, spec), build_binding(name)]


def build_size_policies(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the policies for all kinds with free-form values that users and vendors write.

    The policies do not check Workers that the operator creates. It creates thousands at once, and their attributes come
    from pools, which a policy has checked.
    """
    operator = f"system:serviceaccount:{namespace}:{accounts.operator}"
    defaults = " + ".join(
        (
            _sum_over("object.spec.interface.?attributes", "a", _weigh_default("a")),
            _sum_over("object.spec.interface.?actions", "a", _sum_over("a.?parameters", "p", _weigh_default("p"))),
            _sum_over("object.spec.interface.?actions", "a", _sum_over("a.?result", "p", _weigh_default("p"))),
        )
    )
    mixin_defaults = " + ".join(
        (
            _sum_over("object.spec.?attributes", "a", _weigh_default("a")),
            _sum_over("object.spec.?actions", "a", _sum_over("a.?attributes", "p", _weigh_default("p"))),
        )
    )
    elsewhere = REMEDY
    smaller = "give smaller values"
    parameters, attributes = "spec.parameters", "spec.attributes"
    of_attributes = _weigh_field("attributes")
    return [
        *_build_limit(names.SERVICE_ACTIONS, parameters, _weigh_field("parameters"), MAX_PARAMETERS_WEIGHT, elsewhere),
        *_build_limit(names.WORKER_POOLS, attributes, of_attributes, MAX_ATTRIBUTES_WEIGHT, smaller),
        *_build_limit(names.WORKERS, attributes, of_attributes, MAX_ATTRIBUTES_WEIGHT, smaller, exempt=operator),
        *_build_limit(names.OCCI_LINKS, attributes, of_attributes, MAX_ATTRIBUTES_WEIGHT, smaller),
        *_build_limit(names.SIMULATION_SERVICES, "default of spec.interface", defaults, MAX_DEFAULT_WEIGHT, smaller),
        *_build_metadata_limits(operator),
        *_build_limit(names.OCCI_MIXINS, "default of spec.attributes", mixin_defaults, MAX_DEFAULT_WEIGHT, smaller),
    ]
