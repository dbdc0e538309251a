"""ValidatingAdmissionPolicies: rules that need to know who asks, or another object."""

from __future__ import annotations

from simyard.api import names
from simyard.api.base import Json
from simyard.build.metadata import metadata
from simyard_sites.kubernetes.resource import Resource

_API_VERSION = "admissionregistration.k8s.io/v1"
ACTION_POLICY = f"{names.SERVICE_ACTIONS.plural}.{names.GROUP}"
OWNERSHIP_POLICY = f"{names.WORKERS.plural}.{names.GROUP}"
PLACEMENT_POLICY = f"placement.{names.GROUP}"


def _policy(name: str, resource: Resource, spec: Json) -> Json:
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


def _binding(name: str, **spec: Json) -> Json:
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata(name),
        "spec": {"policyName": name, "validationActions": ["Deny"], **spec},
    }


def actions(namespace: str) -> list[Json]:
    """Creating or changing a ServiceAction takes the same right as calling the action.

    The accounts of the apiserver and of OCCI frontends are exempt: they have asked for the caller already.
    """
    targets = (names.WORKERS, names.WORKER_POOLS, names.SIMULATION_SERVICES)
    plurals = ", ".join(f"'{target.kind}': '{target.plural}'" for target in targets)
    accounts = [f"system:serviceaccount:{namespace}:{name}" for name in (names.APISERVER, names.FRONTEND)]
    requester = f"object.metadata.?annotations['{names.ANNOTATION_REQUESTED_BY}'].orValue('')"
    renamed = f"{requester} != {requester.replace('object', 'oldObject', 1)}"
    spec: Json = {
        "matchConditions": [
            {"name": "by-a-user", "expression": f"!(request.userInfo.username in {accounts})"},
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
    return [_policy(ACTION_POLICY, names.SERVICE_ACTIONS, spec), _binding(ACTION_POLICY)]


def ownership(namespace: str) -> list[Json]:
    """Only the platform says to which pool a Worker belongs: its credentials at the broker depend on it.

    Kubernetes' own controllers (garbage collection) and administrators are exempt.
    """
    account = f"system:serviceaccount:{namespace}:{names.OPERATOR}"
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
            }
        ],
    }
    return [_policy(OWNERSHIP_POLICY, names.WORKERS, spec), _binding(OWNERSHIP_POLICY)]


def placement() -> list[Json]:
    """A WorkerPool names only sites that its namespace may use, and consents to each External one that it names.

    Evaluated once per CloudSite. A pool whose placement does not change is not checked again: it must remain possible
    to scale, and to delete, when a site changes. While the API server cannot evaluate it (just after its start it knows
    no CloudSites yet), nothing is refused: the operator places by the same rules in any case.
    """
    named = "params.metadata.name in object.spec.placement.sites"
    spec: Json = {
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": names.API_VERSION, "kind": names.CLOUD_SITES.kind},
        "matchConditions": [
            {
                "name": "of-the-placement",
                "expression": "oldObject == null || object.spec.placement != oldObject.spec.placement",
            }
        ],
        "validations": [
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
            {
                "expression": (
                    f"!({named}) || params.spec.allowedNamespaces.from == 'All'"
                    " || request.namespace in params.spec.allowedNamespaces.names"
                ),
                "messageExpression": (
                    "'spec.placement.sites: the site ' + params.metadata.name"
                    " + ' is not open to the namespace ' + request.namespace"
                ),
            },
        ],
    }
    every_site: Json = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return [_policy(PLACEMENT_POLICY, names.WORKER_POOLS, spec), _binding(PLACEMENT_POLICY, paramRef=every_site)]
