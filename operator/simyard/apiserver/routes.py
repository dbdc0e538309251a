"""What a request asks for, read from its method and path. Pure."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from simyard.api.names import (
    SIMULATION_SERVICES,
    SUBRESOURCES_API_VERSION,
    SUBRESOURCES_GROUP,
    WORKER_POOLS,
    WORKERS,
)
from simyard_sites.kubernetes.resource import Resource

GROUP_PATH = f"/apis/{SUBRESOURCES_GROUP}"
VERSION_PATH = f"/apis/{SUBRESOURCES_API_VERSION}"
TARGETS: dict[str, Resource] = {item.plural: item for item in (WORKERS, WORKER_POOLS, SIMULATION_SERVICES)}
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SEGMENT = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}")


class Document(enum.StrEnum):
    """What is answered without authorization: health and the description of the API."""

    HEALTHZ = "/healthz"
    LIVEZ = "/livez"
    READYZ = "/readyz"
    GROUPS = "/apis"
    GROUP = GROUP_PATH
    RESOURCES = VERSION_PATH
    OPENAPI_V2 = "/openapi/v2"
    OPENAPI_V3 = "/openapi/v3"
    OPENAPI_V3_GROUP = f"/openapi/v3{VERSION_PATH}"


_DOCUMENTS = {document.value: document for document in Document}


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a target object or something below it.

    ``path`` are the words after the target's name: ``("actions", "solve")``; RBAC knows them, joined by slashes, as the
    subresource. ``group`` is the API group in which it is asked whether the caller may.
    """

    verb: str
    namespace: str
    resource: Resource
    name: str
    path: tuple[str, ...] = ()
    group: str = SUBRESOURCES_GROUP

    @property
    def subresource(self) -> str:
        """As RBAC names it: ``actions/solve``; empty for the target itself."""
        return "/".join(self.path)


Route = Document | Call


def verbs_of(call: Call) -> tuple[str, ...]:
    """The verbs that are served under a call's path; none if there is no such subresource."""
    match call.path:
        case () | ("attributes",):
            return ("get",)
        case ("actions", _):
            return ("create", "update")
        case ("attributes", _):
            return ("get", "update")
        case ("log",) if call.resource == WORKERS:
            return ("get",)
    return ()


def parse(method: str, path: str) -> Route | None:
    """The route of a request, or None if nothing is served under that path."""
    trimmed = path.rstrip("/") or "/"
    if (document := _DOCUMENTS.get(trimmed)) is not None:
        return document
    prefix, words = trimmed[: len(VERSION_PATH)], trimmed[len(VERSION_PATH) :].split("/")
    if prefix != VERSION_PATH or len(words) < 5 or words[:2] != ["", "namespaces"]:
        return None
    namespace, plural, name, *rest = words[2:]
    resource = TARGETS.get(plural)
    if resource is None or not _NAME.fullmatch(namespace) or not _NAME.fullmatch(name):
        return None
    if len(rest) > 2 or not all(_SEGMENT.fullmatch(word) for word in rest):
        return None
    return Call(VERBS.get(method, method.lower()), namespace, resource, name, tuple(rest))
