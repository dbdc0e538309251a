# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies: rules that depend on the user who sends a request, or on another object."""

from __future__ import annotations

from simyard.api import names
from simyard.api.base import Json
from simyard.api.site_permission import CEL_IS_OPEN, CEL_POOL_HAS_CONSENT, CEL_WORKER_MAY_HAVE_CONSENT
from simyard.manifests.frontend import NAME_PREFIX
from simyard.manifests.metadata import build_metadata
from simyard.manifests.rbac import DEFAULT_ACCOUNTS, Accounts
from simyard_sites.kubernetes.resource import Resource

_API_VERSION = "admissionregistration.k8s.io/v1"
ACTION_POLICY = f"{names.SERVICE_ACTIONS.plural}.{names.GROUP}"
STUDY_POLICY = f"{names.STUDIES.plural}.{names.GROUP}"
OWNERSHIP_POLICY = f"{names.WORKERS.plural}.{names.GROUP}"
PLACEMENT_POLICY = f"placement.{names.GROUP}"
WORKER_SITE_POLICY = f"worker-sites.{names.GROUP}"


def build_policy(name: str, resource: Resource, spec: Json) -> Json:
    """Return a ValidatingAdmissionPolicy that checks each new or changed object of one resource."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": build_metadata(name),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [resource.group],
                        "apiVersions": [resource.version],
                        "resources": [resource.plural],
                        "operations": ["CREATE", "UPDATE"],
                    }
                ]
            },
            **spec,
        },
    }


def build_binding(name: str, **spec: Json) -> Json:
    """Return the binding with which the API server denies requests that a policy refuses."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": build_metadata(name),
        "spec": {"policyName": name, "validationActions": ["Deny"], **spec},
    }


def build_action_policy(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the policy that only users with the right to call an action may create or change its ServiceActions.

    The accounts of the apiserver and of OCCI frontends are exempt, because these processes check the right of the
    caller themselves.
    """
    own = f"system:serviceaccount:{namespace}:"
    user = "request.userInfo.username"
    requester = f"object.metadata.?annotations['{names.ANNOTATION_REQUESTED_BY}'].orValue('')"
    renamed = f"{requester} != {requester.replace('object', 'oldObject', 1)}"
    spec: Json = {
        "matchConditions": [
            {
                "name": "by-a-user",
                "expression": f"{user} != '{own}{accounts.apiserver}' && !{user}.startsWith('{own}{NAME_PREFIX}')",
            },
            {
                "name": "of-the-call",
                "expression": f"oldObject == null || object.spec != oldObject.spec || {renamed}",
            },
        ],
        **_require_call_right(),
    }
    spec["validations"].append(
        {
            "expression": f"oldObject == null ? {requester} in ['', request.userInfo.username] : !({renamed})",
            "message": f"metadata.annotations: {names.ANNOTATION_REQUESTED_BY} must be your own user name, or absent",
            "reason": "Forbidden",
        }
    )
    return [build_policy(ACTION_POLICY, names.SERVICE_ACTIONS, spec), build_binding(ACTION_POLICY)]


def build_study_policy() -> list[Json]:
    """Return the policy of users who create or change a Study.

    They need the right to call its action, and the right to scale its pool if the study asks for workers.
    """
    changed = {"name": "of-the-calls", "expression": "oldObject == null || object.spec != oldObject.spec"}
    spec: Json = {"matchConditions": [changed], **_require_call_right()}
    spec["validations"].append(
        {
            "expression": (
                f"!has(object.spec.workers) || authorizer.group('{names.GROUP}')"
                f".resource('{names.WORKER_POOLS.plural}').subresource('scale').namespace(request.namespace)"
                ".name(object.spec.target.name).check('update').allowed()"
            ),
            "messageExpression": (
                "'spec.workers: ' + request.userInfo.username"
                f" + ' may not update {names.WORKER_POOLS.plural}/scale of {names.GROUP} on '"
                " + object.spec.target.name"
            ),
            "reason": "Forbidden",
        }
    )
    return [build_policy(STUDY_POLICY, names.STUDIES, spec), build_binding(STUDY_POLICY)]


def _require_call_right() -> Json:
    """Return the part of a policy that checks the right to call ``spec.action`` on ``spec.target``.

    A user needs the verb ``create`` for a new object, and the verb ``update`` for a change.
    """
    targets = (names.WORKERS, names.WORKER_POOLS, names.SIMULATION_SERVICES)
    plurals = ", ".join(f"'{target.kind}': '{target.plural}'" for target in targets)
    return {
        "variables": [
            {"name": "verb", "expression": "oldObject == null ? 'create' : 'update'"},
            {"name": "resource", "expression": f"{{{plurals}}}[object.spec.target.kind]"},
            {"name": "subresource", "expression": "'actions/' + object.spec.action"},
        ],
        "validations": [
            {
                "expression": (
                    f"authorizer.group('{names.SUBRESOURCES_GROUP}').resource(variables.resource)"
                    ".subresource(variables.subresource).namespace(request.namespace)"
                    ".name(object.spec.target.name).check(variables.verb).allowed()"
                ),
                "messageExpression": (
                    "'spec.action: ' + request.userInfo.username + ' may not ' + variables.verb + ' '"
                    " + variables.resource + '/' + variables.subresource"
                    f" + ' of {names.SUBRESOURCES_GROUP} on ' + object.spec.target.name"
                ),
                "reason": "Forbidden",
            }
        ],
    }


def build_ownership_policy(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the policy that only the platform may set the pool of a Worker and the licence whose seat it occupies.

    The reason is that a Worker's broker credentials depend on its pool, and the free seats of a licence depend on its
    Workers. Kubernetes' own controllers, such as garbage collection, and administrators are exempt.
    """
    licence = f"object.metadata.?annotations['{names.ANNOTATION_LICENCE}'].orValue('')"
    account = f"system:serviceaccount:{namespace}:{accounts.operator}"
    exempt = "['system:masters', 'system:serviceaccounts:kube-system']"
    spec: Json = {
        "matchConditions": [
            {
                "name": "by-a-user",
                "expression": (
                    f"request.userInfo.username != '{account}'"
                    f" && !request.userInfo.groups.exists(group, group in {exempt})"
                ),
            },
        ],
        "validations": [
            {
                "expression": (
                    "oldObject == null ? !has(object.metadata.ownerReferences)"
                    " : object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences"
                ),
                "message": "metadata.ownerReferences: only the platform sets the pool of a Worker: leave the field as"
                " it is",
                "reason": "Forbidden",
            },
            {
                "expression": f"oldObject == null || {licence} == {licence.replace('object', 'oldObject', 1)}",
                "message": (
                    f"metadata.annotations: only the platform changes {names.ANNOTATION_LICENCE}: leave it as it is"
                ),
                "reason": "Forbidden",
            },
        ],
    }
    return [build_policy(OWNERSHIP_POLICY, names.WORKERS, spec), build_binding(OWNERSHIP_POLICY)]


def build_placement_policy() -> list[Json]:
    """Return the policy that a WorkerPool may name only sites that are open to its namespace.

    A site with ``trust: External`` also needs the pool's consent. The policy checks a pool only when its placement
    changes, so that users can still scale or delete the pool after a site has changed.
    """
    named = "params.metadata.name in object.spec.placement.sites"
    return _build_site_policy(
        PLACEMENT_POLICY,
        names.WORKER_POOLS,
        {
            "name": "of-the-placement",
            "expression": "oldObject == null || object.spec.placement != oldObject.spec.placement",
        },
        {
            "expression": f"!({named}) || {CEL_POOL_HAS_CONSENT}",
            "messageExpression": (
                "'spec.placement.consent: the site ' + params.metadata.name + ' is External:"
                " add it to this list if it may receive the data of this pool'"
            ),
        },
        _require_open_namespace(named, "spec.placement.sites"),
    )


def build_worker_site_policy(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the policy that the site of a new Worker must have room, be open to its namespace and not be cordoned.

    A Worker without a pool cannot use an External site, because only a pool can give its consent. The operator is
    exempt, because it checks the same rules itself.
    """
    named = "params.metadata.name == object.spec.site"
    site = "'spec.site: the site ' + params.metadata.name + "
    account = f"system:serviceaccount:{namespace}:{accounts.operator}"
    return _build_site_policy(
        WORKER_SITE_POLICY,
        names.WORKERS,
        {"name": "of-a-new-worker", "expression": f"oldObject == null && request.userInfo.username != '{account}'"},
        {
            "expression": f"!({named}) || {CEL_WORKER_MAY_HAVE_CONSENT}",
            "messageExpression": (
                site + "' is External: create a WorkerPool, and name the site in its spec.placement.consent'"
            ),
        },
        _require_open_namespace(named, "spec.site"),
        {
            "expression": f"!({named}) || !params.spec.cordoned",
            "messageExpression": site + "' is cordoned: choose another site'",
        },
        {
            "expression": (f"!({named}) || params.?status.?workers.?total.orValue(0) < params.spec.limits.maxWorkers"),
            "messageExpression": (
                site + "' has its maximum of ' + string(params.spec.limits.maxWorkers)"
                " + ' workers: choose another site, or try again when workers there have ended'"
            ),
        },
    )


def _require_open_namespace(named: str, field: str) -> Json:
    return {
        "expression": f"!({named}) || {CEL_IS_OPEN}",
        "messageExpression": (
            f"'{field}: the site ' + params.metadata.name + ' is not open to the namespace ' + request.namespace"
            " + ': choose another site, or ask the platform team to open it'"
        ),
    }


def _build_site_policy(name: str, resource: Resource, condition: Json, *validations: Json) -> list[Json]:
    """Return a policy that the API server evaluates once for each CloudSite.

    If the API server cannot evaluate the policy, it accepts the request, for example because it knows no CloudSites
    just after its start. This is safe, because the operator applies the same rules
    (:mod:`simyard.api.site_permission`) before it requests a machine.
    """
    spec: Json = {
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": names.API_VERSION, "kind": names.CLOUD_SITES.kind},
        "matchConditions": [condition],
        "validations": list(validations),
    }
    every_site: Json = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return [build_policy(name, resource, spec), build_binding(name, paramRef=every_site)]
