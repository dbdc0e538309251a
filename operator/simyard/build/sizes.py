"""Admission policies that bound free-form values: parameters, attributes and defaults may hold any JSON.

A schema cannot bound such a value, and nothing in CEL gives the length of an object as JSON. So the policies add up the
*weight* of a value: the characters of its texts and of its names, 16 for each number, boolean and null, and 2 to 4 for
what stands between them. JSON with the weight N has at most about 6 N bytes (escaped controls), and mostly N to 2 N.
CEL does not recurse either: the expression is written out for :data:`MAX_DEPTH` levels. A value that nests deeper, or a
list or object of more than :data:`MAX_MEMBERS` members, weighs more than any limit. The bound on depth also keeps every
parser of these objects away from its limit of recursion. The API server gives up on a value of more than about 20,000
parts, and refuses it without our message; the aggregated API weighs parameters by
:func:`simyard.api.weights.weigh_value` first.
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
    SCALAR,
    TOO_DEEP,
)
from simyard.build.admission import binding, policy
from simyard_sites.kubernetes.resource import Resource


def weight(value: str, levels: int = MAX_DEPTH) -> str:
    """Return the CEL expression that weighs the value of another expression, which may nest so many levels."""
    if levels == 0:
        container = f"type({value}) == list || type({value}) == map ? {TOO_DEEP} : {SCALAR}"
    else:
        key, item = f"k{levels}", f"v{levels}"
        members = f"{value}.map({key}, [dyn(size({key}) + 4), {value}[{key}]])"
        items = f"type({value}) == list ? {value}.map({key}, [dyn(2), {key}]) : []"
        added = f".map({item}, int({item}[0]) + {weight(f'{item}[1]', levels - 1)}).sum() + 2"
        members = f"(type({value}) == map ? {members} : {items}){added}"
        # To weigh more members would cost more than the API server permits to evaluate.
        few = f"size({value}) > {MAX_MEMBERS} ? {MAX_PARAMETERS_WEIGHT} + size({value}) : {members}"
        container = f"type({value}) == map || type({value}) == list ? ({few}) : {SCALAR}"
    return f"(type({value}) == string ? size({value}) + 2 : {container})"


def _each(items: str, item: str, value: str) -> str:
    """Return the sum of a value over the items of an optional list."""
    return f"{items}.orValue([]).map({item}, {value}).sum()"


def _default(item: str) -> str:
    return f"({item}.?default.hasValue() ? {weight(f'{item}.default')} : 0)"


def _values(field: str) -> str:
    path = f"object.spec.?{field}"
    return f"({path}.hasValue() ? {weight(f'object.spec.{field}')} : 0)"


def _bound(resource: Resource, field: str, expression: str, limit: int, remedy: str) -> list[Json]:
    name = f"{resource.plural}-size.{names.GROUP}"
    spec: Json = {
        "matchConditions": [
            {"name": "of-a-new-spec", "expression": "oldObject == null || object.spec != oldObject.spec"},
        ],
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
    return [policy(name, resource, spec), binding(name)]


def sizes() -> list[Json]:
    """Return the policies for all kinds with free-form values that users and vendors write."""
    defaults = " + ".join(
        (
            _each("object.spec.interface.?attributes", "a", _default("a")),
            _each("object.spec.interface.?actions", "a", _each("a.?parameters", "p", _default("p"))),
            _each("object.spec.interface.?actions", "a", _each("a.?result", "p", _default("p"))),
        )
    )
    mixin_defaults = " + ".join(
        (
            _each("object.spec.?attributes", "a", _default("a")),
            _each("object.spec.?actions", "a", _each("a.?attributes", "p", _default("p"))),
        )
    )
    elsewhere = "store large inputs elsewhere and pass their address"
    smaller = "give smaller values"
    parameters, attributes = "spec.parameters", "spec.attributes"
    of_attributes = _values("attributes")
    return [
        *_bound(names.SERVICE_ACTIONS, parameters, _values("parameters"), MAX_PARAMETERS_WEIGHT, elsewhere),
        *_bound(names.WORKER_POOLS, attributes, of_attributes, MAX_ATTRIBUTES_WEIGHT, smaller),
        *_bound(names.WORKERS, attributes, of_attributes, MAX_ATTRIBUTES_WEIGHT, smaller),
        *_bound(names.OCCI_LINKS, attributes, of_attributes, MAX_ATTRIBUTES_WEIGHT, smaller),
        *_bound(names.SIMULATION_SERVICES, "default of spec.interface", defaults, MAX_DEFAULT_WEIGHT, smaller),
        *_bound(names.OCCI_MIXINS, "default of spec.attributes", mixin_defaults, MAX_DEFAULT_WEIGHT, smaller),
    ]
