"""Every request to its response: the table of paths and verbs (GFD.185 3.4; OCCI 1.2, HTTP protocol, section 5)."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import re
from collections.abc import Coroutine

from simyard.apiserver.status import StatusError
from simyard.frontend.backend import Backend
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.frontend.preconditions import refuse_conditions
from simyard.frontend.reading import Reader, no_entity
from simyard.frontend.renderings import Renderings
from simyard.frontend.sent import refuse_query
from simyard.frontend.targets import Collection, Discovery, Instance, Target, target_of
from simyard.frontend.writing import Writer
from simyard.occi.errors import OcciError, shown
from simyard.occi.model import Kind, Mixin
from simyard.occi.negotiation import Rendering, choose
from simyard.occi.rendering import render_error

log = logging.getLogger(__name__)

REQUEST_SECONDS = 60.0
"""For whatever a change waits for, the result of an action included."""
VERSION = (1, 2)
_READING = frozenset({"GET", "HEAD"})
PAGING = frozenset({"page", "number"})

_ANNOUNCED = re.compile(r"\bOCCI/([0-9]{1,3})\.([0-9]{1,3})\b", re.ASCII)
_MOST_CACHED_CHARACTERS = 256


class Handlers:
    """Answers requests of any transport."""

    def __init__(
        self, backend: Backend, *, endpoints: tuple[str, ...] = (), request_seconds: float = REQUEST_SECONDS
    ) -> None:
        """``endpoints``: of all frontends of these entities: what begins with one is ours, in requests of all."""
        self._backend = backend
        self._request_seconds = request_seconds
        renderings = Renderings(backend)
        self._reader = Reader(backend, renderings)
        self._writer = Writer(backend, self._reader, renderings, endpoints)

    async def handle(self, request: OcciRequest) -> OcciResponse:
        """Answer a request; a refusal or a failure is an answer too."""
        try:
            if request.method in _READING:  # what it waits for has deadlines of its own; a timer costs more than a GET
                return await self._read(request)
            async with asyncio.timeout(self._request_seconds), self._backend.visible():
                return await self._write(request)
        except OcciError as error:
            refused = error
        except StatusError as error:
            refused = _of_status(error)
        except TimeoutError:
            refused = OcciError(504, f"not answered within {self._request_seconds:.0f} s; it may have been carried out")
        except Exception:  # whatever it is, the client gets one line, and the log the traceback
            log.exception("%s %s", request.method, shown(request.path))
            refused = OcciError(500, "the frontend failed; its log says how")
        return refusal(refused, request.header("accept"))

    def _read(self, request: OcciRequest) -> Coroutine[None, None, OcciResponse]:
        target = self._target(request)
        if request.query and "action" in request.query:
            raise _no_post(request)
        if isinstance(target, Instance):
            return self._reader.entity(request, target.path)
        if isinstance(target, Collection):
            return self._reader.collection(request, target)
        return self._reader.model(request)

    async def _write(self, request: OcciRequest) -> OcciResponse:
        target = self._target(request)
        writer = self._writer
        if not isinstance(target, Instance):
            refuse_conditions(request)
        action = request.query.get("action")
        if action is not None:
            if request.method != "POST" or isinstance(target, Discovery):
                raise _no_post(request)
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
        error = OcciError(405, f"{shown(request.method)} is not served under {shown(request.path)}")
        refused = refusal(error, request.header("accept"))
        return dataclasses.replace(refused, headers=(*refused.headers, ("Allow", ", ".join(allowed(target)))))

    def _target(self, request: OcciRequest) -> Target:
        check_version(request.header("user-agent"))
        model = self._backend.model()
        target = target_of(request.path, model)
        if isinstance(target, Instance) and target.kind is None:
            raise _unbound(request) or no_entity(target.path)
        if isinstance(target, Collection) and target.category is None and not model.leads(target.location):
            error = _unbound(request)
            if error is not None or request.method != "POST":  # which creates what its Category says, at any location
                raise error or OcciError(404, f"nothing is at {shown(target.location)} or below it; see /-/")
        return target


def _no_post(request: OcciRequest) -> OcciError:
    method, path = shown(request.method), shown(request.path)
    return OcciError(400, f"?action: an action is a POST to an entity or a collection, not a {method} to {path}")


def _unbound(request: OcciRequest) -> OcciError | None:
    """Return why a PUT to a path that no kind has is a mistake in the request; None for other methods."""
    if request.method != "PUT":
        return None
    path = shown(request.path)
    return OcciError(400, f"{path}: PUT makes an entity below the location of its kind only, such as /compute/NAME")


def allowed(target: Target) -> tuple[str, ...]:
    """The methods that are served for a target."""
    put = isinstance(target, Instance) or (isinstance(target, Collection) and isinstance(target.category, Mixin))
    return ("GET", "HEAD", "POST", *(("PUT",) if put else ()), "DELETE", "OPTIONS")


def refusal(error: OcciError, accept: str | None) -> OcciResponse:
    """An error as one line of text, or as JSON where JSON was asked for."""
    try:
        rendering = choose(accept)
    except OcciError:
        rendering = Rendering.TEXT_PLAIN
    rendered = render_error(error.status, error.message, rendering)
    again = (("Retry-After", "1"),) if error.status == 503 else ()
    return OcciResponse(error.status, rendered.body, rendered.content_type, (*rendered.headers, *again))


def check_version(user_agent: str | None) -> None:
    """Refuse a client that speaks only versions of OCCI above ours (GFD.185 3.6.7).

    Raises:
        OcciError: 501.
    """
    if user_agent and "OCCI/" in user_agent and not _is_known(user_agent[:_MOST_CACHED_CHARACTERS]):
        raise OcciError(501, f"User-Agent: {shown(user_agent)} asks for a later OCCI than 1.2")


@functools.lru_cache(maxsize=256)
def _is_known(user_agent: str) -> bool:
    versions = [(int(major), int(minor)) for major, minor in _ANNOUNCED.findall(user_agent)]
    return not versions or min(versions) <= VERSION


def _of_status(error: StatusError) -> OcciError:
    """What parts shared with the aggregated API raise; OCCI has neither 422 nor 429.

    Their 503 says when to try again only where nothing was done; for the other case OCCI has 504.
    """
    if error.code == 503 and not error.retry_after_seconds:
        return OcciError(504, error.message)
    return OcciError({422: 400, 429: 503}.get(error.code, error.code), error.message)
