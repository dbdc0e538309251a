# SPDX-License-Identifier: Apache-2.0
"""Dispatches every request by path and verb (GFD.185 3.4; OCCI 1.2, HTTP protocol, section 5)."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import re
from collections.abc import Coroutine

from simyard.frontend.backend import Backend
from simyard.frontend.changes.preconditions import refuse_conditions
from simyard.frontend.changes.sent import refuse_query
from simyard.frontend.changes.writing import Writer
from simyard.frontend.entities.file_links import parse_file_path
from simyard.frontend.entities.renderings import Renderings
from simyard.frontend.entities.targets import Collection, Discovery, Instance, Target, find_target
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.frontend.reading import FIND_SECONDS, Reader, make_not_found_error
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import Kind, Mixin
from simyard.occi.negotiation import Rendering, choose_rendering
from simyard.occi.rendering import render_error
from simyard.serving.status import StatusError

log = logging.getLogger(__name__)

REQUEST_SECONDS = 60.0
"""Time limit for a request that changes something, with all its waits, such as the wait for the result of an action."""
VERSION = (1, 2)
_READING = frozenset({"GET", "HEAD"})
PAGING = frozenset({"page", "number"})

_ANNOUNCED = re.compile(r"\bOCCI/([0-9]{1,3})\.([0-9]{1,3})\b", re.ASCII)
_MAX_CACHED_CHARACTERS = 256


class Handlers:
    """Handlers of all requests, independent of the transport."""

    def __init__(
        self,
        backend: Backend,
        *,
        endpoints: tuple[str, ...] = (),
        request_seconds: float = REQUEST_SECONDS,
        find_seconds: float = FIND_SECONDS,
    ) -> None:
        """Create the handlers.

        ``endpoints`` are the URLs of all frontends of these entities: a URI that begins with one of them names an
        entity of this frontend. ``request_seconds`` is the time limit for a request that changes something.
        """
        self._backend = backend
        self._request_seconds = request_seconds
        renderings = Renderings(backend)
        self._reader = Reader(backend, renderings, find_seconds)
        self._writer = Writer(backend, self._reader, renderings, endpoints)

    async def handle(self, request: OcciRequest) -> OcciResponse:
        """Return the response to a request. An error is a response too: the method raises no OcciError."""
        try:
            if request.method in _READING:  # its waits have their own deadlines, and a timer would cost more than a GET
                return await self._read(request)
            async with asyncio.timeout(self._request_seconds), self._backend.visible():
                return await self._write(request)
        except OcciError as error:
            refused = error
        except StatusError as error:
            refused = _translate_status(error)
        except TimeoutError:
            refused = OcciError(
                504, f"no answer within {self._request_seconds:.0f} s; the request may have been carried out"
            )
        except Exception:  # the response has one line, and the log has the traceback
            log.exception("%s %s", request.method, quote_input(request.path))
            refused = OcciError(500, "the frontend failed; its log has the reason")
        return make_error_response(refused, request.get_header("accept"))

    def _read(self, request: OcciRequest) -> Coroutine[None, None, OcciResponse]:
        if address := parse_file_path(request.path):
            return self._redirect_to_file(request, address)
        target = self._find_target(request)
        if request.query and "action" in request.query:
            raise _no_post_error(request)
        if isinstance(target, Instance):
            return self._reader.read_entity(request, target.path)
        if isinstance(target, Collection):
            return self._reader.read_collection(request, target)
        return self._reader.read_model(request)

    async def _redirect_to_file(self, request: OcciRequest, address: str) -> OcciResponse:
        """Return a redirection to the content of a file. Caches may not store it, because the URL is a secret."""
        url = await self._backend.find_download(request.identity, address)
        return OcciResponse(307, b"", "text/plain", (("Location", url), ("Cache-Control", "no-store")))

    async def _write(self, request: OcciRequest) -> OcciResponse:
        target = self._find_target(request)
        writer = self._writer
        if not isinstance(target, Instance):
            refuse_conditions(request)
        action = request.query.get("action")
        if action is not None:
            if request.method != "POST" or isinstance(target, Discovery):
                raise _no_post_error(request)
            return await writer.act(request, target, action)
        is_selection = request.method == "DELETE" and isinstance(target, Collection)
        refuse_query(request, PAGING if is_selection else frozenset())
        match request.method, target:
            case "POST", Discovery():
                return await writer.define(request)
            case "DELETE", Discovery():
                return await writer.undefine(request)
            case "POST", Collection(category=Mixin() as mixin):
                return await writer.associate(request, mixin, replace=False)
            case "PUT", Collection(category=Mixin() as mixin):
                return await writer.associate(request, mixin, replace=True)
            case "DELETE", Collection(category=Mixin() as mixin):
                return await writer.dissociate(request, mixin)
            case "POST", Collection():
                return await writer.create(request, target)
            case "DELETE", Collection():
                return await writer.delete_all(request, target)
            case "POST", Instance():
                return await writer.update(request, target.path)
            case "PUT", Instance(kind=Kind() as kind):
                return await writer.put(request, target.path, kind)
            case "DELETE", Instance():
                return await writer.delete(request, target.path)
        error = OcciError(405, f"{quote_input(request.method)} is not served under {quote_input(request.path)}")
        refused = make_error_response(error, request.get_header("accept"))
        return dataclasses.replace(
            refused, headers=(*refused.headers, ("Allow", ", ".join(list_allowed_methods(target))))
        )

    def _find_target(self, request: OcciRequest) -> Target:
        check_version(request.get_header("user-agent"))
        model = self._backend.get_model()
        target = find_target(request.path, model)
        if isinstance(target, Instance) and target.kind is None:
            raise _put_error(request) or make_not_found_error(target.path)
        if isinstance(target, Collection) and target.category is None and not model.has_location_below(target.location):
            error = _put_error(request)
            if error is not None or request.method != "POST":  # POST creates an entity of its Category, at any location
                raise error or OcciError(
                    404,
                    f"no category is at {quote_input(target.location)} or below it; GET /-/ lists the locations",
                )
        return target


def _no_post_error(request: OcciRequest) -> OcciError:
    method, path = quote_input(request.method), quote_input(request.path)
    return OcciError(400, f"?action: {method} to {path} is not possible; send POST to an entity or a collection")


def _put_error(request: OcciRequest) -> OcciError | None:
    """Return the error for a PUT to a path that belongs to no kind; None if the method is not PUT."""
    if request.method != "PUT":
        return None
    path = quote_input(request.path)
    return OcciError(400, f"{path}: PUT creates an entity below the location of its kind only, such as /compute/NAME")


def list_allowed_methods(target: Target) -> tuple[str, ...]:
    """Return the HTTP methods that a target supports."""
    put = isinstance(target, Instance) or (isinstance(target, Collection) and isinstance(target.category, Mixin))
    return ("GET", "HEAD", "POST", *(("PUT",) if put else ()), "DELETE", "OPTIONS")


def make_error_response(error: OcciError, accept: str | None) -> OcciResponse:
    """Return the response for an error: one line of text, or JSON if the client accepts JSON."""
    try:
        rendering = choose_rendering(accept)
    except OcciError:
        rendering = Rendering.TEXT_PLAIN
    rendered = render_error(error.status, error.message, rendering)
    again = (("Retry-After", "1"),) if error.status == 503 else ()
    return OcciResponse(error.status, rendered.body, rendered.content_type, (*rendered.headers, *again))


def check_version(user_agent: str | None) -> None:
    """Refuse a client that supports only versions of OCCI above 1.2 (GFD.185 3.6.7).

    Raises:
        OcciError: 501.
    """
    if user_agent and "OCCI/" in user_agent and not _is_known(user_agent[:_MAX_CACHED_CHARACTERS]):
        raise OcciError(
            501,
            f"User-Agent: {quote_input(user_agent)} asks for a version of OCCI above 1.2; ask for OCCI/1.2 or OCCI/1.1",
        )


@functools.lru_cache(maxsize=256)
def _is_known(user_agent: str) -> bool:
    versions = [(int(major), int(minor)) for major, minor in _ANNOUNCED.findall(user_agent)]
    return not versions or min(versions) <= VERSION


def _translate_status(error: StatusError) -> OcciError:
    """Return the OCCI error for an error of the packages that are shared with the aggregated API.

    OCCI has neither 422 nor 429. A 503 of these packages names a time for the next attempt only if nothing was done; a
    503 without this time becomes 504.
    """
    if error.code == 503 and not error.retry_after_seconds:
        return OcciError(504, error.message)
    return OcciError({422: 400, 429: 503}.get(error.code, error.code), error.message)
