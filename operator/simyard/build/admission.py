"""ValidatingAdmissionPolicies: rules that need to know who asks, or another object."""

from __future__ import annotations

from simyard.api import names
from simyard.api.base import Json
from simyard.build.frontend import NAME_PREFIX
from simyard.build.metadata import metadata
from simyard.build.rbac import DEFAULT_ACCOUNTS, Accounts
from simyard_sites.kubernetes.resource import Resource

_API_VERSION = "admissionregistration.k8s.io/v1"
ACTION_POLICY = f"{names.SERVICE_ACTIONS.plural}.{names.GROUP}"
OWNERSHIP_POLICY = f"{names.WORKERS.plural}.{names.GROUP}"
PLACEMENT_POLICY = f"placement.{names.GROUP}"
WORKER_SITE_POLICY = f"worker-sites.{names.GROUP}"


def policy(name: str, resource: Resource, spec: Json) -> Json:
    """Return a ValidatingAdmissionPolicy for created and changed objects of one resource."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata(name),
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


def binding(name: str, **spec: Json) -> Json:
    """Return the binding that has a policy deny requests."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata(name),
        "spec": {"policyName": name, "validationActions": ["Deny"], **spec},
    }


def actions(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Creating or changing a ServiceAction takes the same right as calling the action.

    The accounts of the apiserver and of OCCI frontends are exempt: they have asked for the caller already.
    """
    targets = (names.WORKERS, names.WORKER_POOLS, names.SIMULATION_SERVICES)
    plurals = ", ".join(f"'{target.kind}': '{target.plural}'" for target in targets)
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
            },
            {
                "expression": f"oldObject == null ? {requester} in ['', request.userInfo.username] : !({renamed})",
                "message": f"metadata.annotations: {names.ANNOTATION_REQUESTED_BY} names who asked, and nobody else",
                "reason": "Forbidden",
            },
        ],
    }
    return [policy(ACTION_POLICY, names.SERVICE_ACTIONS, spec), binding(ACTION_POLICY)]


def ownership(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Only the platform says to which pool a Worker belongs, and of which licence it holds a seat.

    Its credentials at the broker depend on the pool, and the seats that are left for others on the licence. Kubernetes'
    own controllers (garbage collection) and administrators are exempt.
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
                "message": "metadata.ownerReferences: only the platform says to which pool a worker belongs",
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
    return [policy(OWNERSHIP_POLICY, names.WORKERS, spec), binding(OWNERSHIP_POLICY)]


def placement() -> list[Json]:
    """A WorkerPool names only sites that its namespace may use, and consents to each External one that it names.

    A pool whose placement does not change is not checked again: it must remain possible to scale, and to delete, when a
    site changes.
    """
    named = "params.metadata.name in object.spec.placement.sites"
    return _of_sites(
        PLACEMENT_POLICY,
        names.WORKER_POOLS,
        {
            "name": "of-the-placement",
            "expression": "oldObject == null || object.spec.placement != oldObject.spec.placement",
        },
        {
            "expression": (
                f"!({named}) || params.spec.trust != 'External'"
                " || params.metadata.name in object.spec.placement.consent"
            ),
            "messageExpression": (
                "'spec.placement.consent: the site ' + params.metadata.name + ' is External:"
                " name it here too if it may get the data of this pool'"
            ),
        },
        _open_to_the_namespace(named, "spec.placement.sites"),
    )


def sites_of_workers(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """A Worker that somebody creates names a site that its namespace may use, that takes new workers and has room.

    Only a pool can consent to an External site, and only the operator makes the Workers of pools: it is exempt, because
    it places by the same rules.
    """
    named = "params.metadata.name == object.spec.site"
    site = "'spec.site: the site ' + params.metadata.name + "
    account = f"system:serviceaccount:{namespace}:{accounts.operator}"
    return _of_sites(
        WORKER_SITE_POLICY,
        names.WORKERS,
        {"name": "of-a-new-worker", "expression": f"oldObject == null && request.userInfo.username != '{account}'"},
        {
            "expression": (
                f"!({named}) || params.spec.trust != 'External' || object.metadata.?ownerReferences.hasValue()"
            ),
            "messageExpression": (
                site + "' is External: create a WorkerPool, and name the site in its spec.placement.consent'"
            ),
        },
        _open_to_the_namespace(named, "spec.site"),
        {
            "expression": f"!({named}) || !params.spec.cordoned",
            "messageExpression": site + "' is cordoned: name another site'",
        },
        {
            "expression": (f"!({named}) || params.?status.?workers.?total.orValue(0) < params.spec.limits.maxWorkers"),
            "messageExpression": (
                site + "' has its maximum of ' + string(params.spec.limits.maxWorkers)"
                " + ' workers: name another site, or try again when workers there have ended'"
            ),
        },
    )


def _open_to_the_namespace(named: str, field: str) -> Json:
    return {
        "expression": (
            f"!({named}) || params.spec.allowedNamespaces.from == 'All'"
            " || request.namespace in params.spec.allowedNamespaces.names"
        ),
        "messageExpression": (
            f"'{field}: the site ' + params.metadata.name + ' is not open to the namespace ' + request.namespace"
        ),
    }


def _of_sites(name: str, resource: Resource, condition: Json, *validations: Json) -> list[Json]:
    """A policy that is evaluated once per CloudSite.

    While the API server cannot evaluate it (just after its start it knows no CloudSites yet), nothing is refused: the
    operator decides by the same rules before it has a machine created.
    """
    spec: Json = {
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": names.API_VERSION, "kind": names.CLOUD_SITES.kind},
        "matchConditions": [condition],
        "validations": list(validations),
    }
    every_site: Json = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return [policy(name, resource, spec), binding(name, paramRef=every_site)]
