"""Who asks: a Kubernetes token, checked by a TokenReview and remembered for some seconds.

An old client that knows only Basic authentication sends the token as its password; the user name does not matter.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NoReturn

from simyard.api.base import Json
from simyard.frontend.exchange import Identity
from simyard.frontend.metrics import TOKEN_REVIEWS
from simyard.occi.errors import OcciError
from simyard_sites.kubernetes.client import KubeClient, path_of
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

REVIEWS_RESOURCE = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
TTL_SECONDS = 10.0
CAPACITY = 10_000
REVIEW_SECONDS = 10.0
MOST_REVIEWS = 32
STRANGERS = 16
"""So many of the questions at a time are about tokens that are new: whoever sends such ones in masses keeps nobody
waiting whose token was known.
"""
MOST_STRANGERS = 1000
"""So many wait; another one is told to come again."""
REFUSED_SECONDS = 0.1
"""A token that turns out to be nobody's takes its place so much longer: at most 160 of them get to kube-apiserver in a
second.
"""
MOST_TOKEN_CHARACTERS = 16 * 1024
CHALLENGES = (("WWW-Authenticate", 'Bearer realm="simyard"'), ("WWW-Authenticate", 'Basic realm="simyard"'))
"""What a 401 says beside its reason. Basic too: old clients wait for it before they send anything."""

_AUTH = "a table of type (basic), username and password (a Kubernetes token)"

_ASKED = TOKEN_REVIEWS.labels("asked")
_JOINED = TOKEN_REVIEWS.labels("joined")


class Authorization:
    """An ``Authorization`` header, hashed once for all requests that bring it again."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str | None) -> None:
        self.text = text or ""
        self.digest = _digest("header", self.text)


class Authenticator:
    """Asks kube-apiserver, remembers for ten seconds under a hash of the token, and asks of each token once at a time.

    Tokens that are nobody's are remembered too; at most ``MOST_REVIEWS`` questions are under way, and ``STRANGERS``
    about tokens that are new.
    """

    def __init__(self, client: KubeClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Identity | None]] = OrderedDict()
        self._pending: dict[bytes, asyncio.Task[Identity | None]] = {}
        self._places = asyncio.Semaphore(MOST_REVIEWS)
        self._doors = asyncio.Semaphore(STRANGERS)
        self._strangers = 0

    async def of_header(self, authorization: Authorization) -> Identity:
        """The user behind an ``Authorization`` header.

        Raises:
            OcciError: 401, it is nobody; 503, it cannot be found out now.
        """
        digest = authorization.digest
        return self._find(digest) or await self._review(digest, token_of(authorization.text))

    async def of_token(self, token: str) -> Identity:
        """The user whose token came in a message; errors as for :meth:`of_header`."""
        if not token:
            raise OcciError(401, f"header auth is required: {_AUTH}; or X-AUTH-TOKEN")
        return self._find(digest := _digest("token", token)) or await self._review(digest, token)

    def _find(self, digest: bytes) -> Identity | None:
        """The user whom it is known to belong to; raises OcciError 401 if that is nobody."""
        known = self._known.get(digest)
        if known is None or known[0] <= self._clock():
            return None
        return known[1] or _refuse()

    async def _review(self, digest: bytes, token: str) -> Identity:
        if not token or len(token) > MOST_TOKEN_CHARACTERS:
            _refuse()
        task = self._pending.get(digest)
        (_ASKED if task is None else _JOINED).inc()
        if task is None:
            known = self._known.get(digest)
            ask = (
                self._ask(digest, token)
                if known is not None and known[1] is not None
                else self._ask_at_door(digest, token)
            )
            task = asyncio.create_task(ask, name="token review")
            self._pending[digest] = task
            task.add_done_callback(lambda _: self._pending.pop(digest))
        return await asyncio.shield(task) or _refuse()

    async def _ask_at_door(self, digest: bytes, token: str) -> Identity | None:
        if self._strangers >= MOST_STRANGERS:
            raise OcciError(503, "too many tokens that are new here are being looked at; try again")
        self._strangers += 1
        try:
            async with self._doors:
                identity = await self._ask(digest, token)
                if identity is None:
                    await asyncio.sleep(REFUSED_SECONDS)
                return identity
        finally:
            self._strangers -= 1

    async def _ask(self, digest: bytes, token: str) -> Identity | None:
        body = {"apiVersion": REVIEWS_RESOURCE.api_version, "kind": REVIEWS_RESOURCE.kind, "spec": {"token": token}}
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._places:
                answer = await self._client.request(
                    "POST", path_of(REVIEWS_RESOURCE), body=body, resource=REVIEWS_RESOURCE
                )
        except (ApiError, TimeoutError):
            # The error's text is not passed on: nothing of a token may get into a message.
            raise OcciError(503, "the Kubernetes API does not say now whose token this is; try again") from None
        identity = _identity(answer.get("status") or {})
        self._known[digest] = (self._clock() + TTL_SECONDS, identity)
        self._known.move_to_end(digest)
        while len(self._known) > CAPACITY:
            self._known.popitem(last=False)
        return identity


def token_of(authorization: str) -> str:
    """The token in an ``Authorization`` header: ``Bearer TOKEN``, or Basic with it as the password.

    Raises:
        OcciError: 401, there is none.
    """
    scheme, _, rest = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip()
        case "basic":
            try:
                return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError, ValueError):
                raise OcciError(401, "Authorization: the Basic credentials are not base64 of user:password") from None
    raise OcciError(401, "Authorization is required: Bearer and a Kubernetes token, or Basic with it as the password")


def _digest(what: str, text: str) -> bytes:
    """A header and a token that have the same text are not the same."""
    return hashlib.sha256(f"{what} {text}".encode("utf-8", "surrogateescape")).digest()


def _refuse() -> NoReturn:
    raise OcciError(401, "Authorization: the token is not valid, or not any more")


def _identity(status: Json) -> Identity | None:
    user = status.get("user") or {}
    if not status.get("authenticated") or not user.get("username"):
        return None
    extra = user.get("extra") or {}
    return Identity(
        user=str(user["username"]),
        uid=str(user.get("uid") or ""),
        groups=tuple(user.get("groups") or ()),
        extra=tuple((key, tuple(extra[key])) for key in sorted(extra)),
    )
