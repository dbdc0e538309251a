# SPDX-License-Identifier: Apache-2.0
"""Parser of the routes of the aggregated API, from the method and path of a request. The module does no I/O."""

from __future__ import annotations

import enum
import re

from simyard.api.names import FILES, STUDIES, SUBRESOURCES_API_VERSION, SUBRESOURCES_GROUP, WORKERS
from simyard.serving.calls import TARGETS, ResourceCall
from simyard_adapter.digests import is_address

GROUP_PATH = f"/apis/{SUBRESOURCES_GROUP}"
VERSION_PATH = f"/apis/{SUBRESOURCES_API_VERSION}"
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SEGMENT = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}")


class Document(enum.StrEnum):
    """A document that the apiserver serves without authorization: health, discovery or OpenAPI."""

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


Route = Document | ResourceCall


def list_verbs(call: ResourceCall) -> tuple[str, ...]:
    """Return the verbs that the path of a call supports; the result is empty if the subresource does not exist."""
    if call.resource == FILES:
        return ("get", "delete") if call.name else ("list", "create")
    if call.resource == STUDIES:
        return ("get",) if call.path in ((), ("results",)) else ()
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


def parse_route(method: str, path: str) -> Route | None:
    """Return the route of a request; None if its path does not exist."""
    trimmed = path.rstrip("/") or "/"
    if (document := _DOCUMENTS.get(trimmed)) is not None:
        return document
    prefix, words = trimmed[: len(VERSION_PATH)], trimmed[len(VERSION_PATH) :].split("/")
    if prefix != VERSION_PATH or len(words) < 4 or words[:2] != ["", "namespaces"]:
        return None
    namespace, plural, *rest = words[2:]
    if plural == FILES.plural and _NAME.fullmatch(namespace):
        return _parse_file_route(method, namespace, rest)
    if not rest:
        return None
    name, *rest = rest
    resource = STUDIES if plural == STUDIES.plural else TARGETS.get(plural)
    if resource is None or not _NAME.fullmatch(namespace) or not _NAME.fullmatch(name):
        return None
    if len(rest) > 2 or not all(_SEGMENT.fullmatch(word) for word in rest):
        return None
    return ResourceCall(VERBS.get(method, method.lower()), namespace, resource, name, tuple(rest))


def _parse_file_route(method: str, namespace: str, words: list[str]) -> ResourceCall | None:
    """Return the call for a file or, without ``words``, for all files of a namespace; None if there is no such path."""
    if not words:
        return ResourceCall("list" if method == "GET" else VERBS.get(method, method.lower()), namespace, FILES, "")
    if len(words) > 1 or not is_address(words[0]):
        return None
    return ResourceCall(VERBS.get(method, method.lower()), namespace, FILES, words[0])
