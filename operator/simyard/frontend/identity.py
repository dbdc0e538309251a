# SPDX-License-Identifier: Apache-2.0
"""Authenticates users by a Kubernetes token: asks for a TokenReview, and caches its result for some seconds.

A client that supports only Basic authentication sends the token as the password, with any user name.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from typing import NoReturn

from simyard.api.base import Json
from simyard.frontend.exchange import Identity
from simyard.frontend.metrics import TOKEN_REVIEWS
from simyard.occi.errors import OcciError
from simyard.serving.answers import RecentAnswers
from simyard_sites.kubernetes.client import KubeClient, build_path
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

REVIEWS_RESOURCE = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
TTL_SECONDS = 10.0
CAPACITY = 10_000
REVIEW_SECONDS = 10.0
MAX_REVIEWS = 32
MAX_UNKNOWN_TOKEN_REVIEWS = 16
"""Maximum number of simultaneous reviews of unknown tokens.

Because of this limit, a client that sends many invalid tokens does not delay users whose tokens are known.
"""
MAX_WAITING_UNKNOWN_TOKENS = 1000
"""Maximum number of unknown tokens that wait for a review; a request with a further unknown token gets 503."""
REFUSED_SECONDS = 0.1
"""Additional time for which the review of an invalid token counts: kube-apiserver gets at most 160 of them per second.
"""
MAX_TOKEN_CHARACTERS = 16 * 1024
CHALLENGES = (("WWW-Authenticate", 'Bearer realm="simyard"'), ("WWW-Authenticate", 'Basic realm="simyard"'))
"""The headers of a 401. They also offer Basic, because old clients send credentials only after this offer."""

_AUTH = "a table of type (basic), username and password (a Kubernetes token)"

_ASKED = TOKEN_REVIEWS.labels("asked")
_JOINED = TOKEN_REVIEWS.labels("joined")


class Authorization:
    """An ``Authorization`` header with its hash, which is computed once for all requests with the same header."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str | None) -> None:
        self.text = text or ""
        self.digest = _digest("header", self.text)


class Authenticator:
    """The authenticator of a frontend, which finds the user of a token.

    Simultaneous requests with the same token share one review. The result, also for an invalid token, is cached for ten
    seconds under a hash of the token. At most ``MAX_REVIEWS`` reviews run at a time, and at most
    ``MAX_UNKNOWN_TOKEN_REVIEWS`` of unknown tokens. The review of an invalid token counts for ``refused_seconds``
    longer.
    """

    def __init__(
        self,
        client: KubeClient,
        answers: RecentAnswers[bytes, Identity | None] | None = None,
        refused_seconds: float = REFUSED_SECONDS,
    ) -> None:
        self._client = client
        self._refused_seconds = refused_seconds
        self._answers = answers or RecentAnswers(TTL_SECONDS, CAPACITY, name="token review")
        self._places = asyncio.Semaphore(MAX_REVIEWS)
        self._unknown_places = asyncio.Semaphore(MAX_UNKNOWN_TOKEN_REVIEWS)
        self._unknown_waiting = 0

    async def identify_header(self, authorization: Authorization) -> Identity:
        """Return the user behind an ``Authorization`` header.

        Raises:
            OcciError: 401, the token is missing or invalid; 503, the Kubernetes API does not answer now.
        """
        digest = authorization.digest
        return self._find(digest) or await self._review(digest, read_token(authorization.text))

    async def identify_token(self, token: str) -> Identity:
        """Return the user of a token from an AMQP message. Raises the same errors as :meth:`identify_header`."""
        if not token:
            raise OcciError(401, f"header auth is required: {_AUTH}; or X-AUTH-TOKEN")
        return self._find(digest := _digest("token", token)) or await self._review(digest, token)

    def _find(self, digest: bytes) -> Identity | None:
        """Return the user of a token from the cache; None if the token needs a review.

        Raises: OcciError: 401, the cached result says that the token is invalid.
        """
        kept = self._answers.get(digest)
        return None if kept is None else kept.answer or _refuse()

    async def _review(self, digest: bytes, token: str) -> Identity:
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            _refuse()
        (_JOINED if self._answers.is_pending(digest) else _ASKED).inc()
        last = self._answers.get_last(digest)
        was_valid = last is not None and last.answer is not None
        review = self._review_token if was_valid else self._review_unknown
        return await self._answers.share(digest, lambda: review(digest, token)) or _refuse()

    async def _review_unknown(self, digest: bytes, token: str) -> Identity | None:
        if self._unknown_waiting >= MAX_WAITING_UNKNOWN_TOKENS:
            raise OcciError(503, "too many unknown tokens are being reviewed now; try again")
        self._unknown_waiting += 1
        try:
            async with self._unknown_places:
                identity = await self._review_token(digest, token)
                if identity is None:
                    await asyncio.sleep(self._refused_seconds)
                return identity
        finally:
            self._unknown_waiting -= 1

    async def _review_token(self, digest: bytes, token: str) -> Identity | None:
        body = {"apiVersion": REVIEWS_RESOURCE.api_version, "kind": REVIEWS_RESOURCE.kind, "spec": {"token": token}}
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._places:
                answer = await self._client.request(
                    "POST", build_path(REVIEWS_RESOURCE), body=body, resource=REVIEWS_RESOURCE
                )
        except (ApiError, TimeoutError):
            # The text of the error is left out, because no part of a token may get into a message.
            raise OcciError(503, "the Kubernetes API does not review the token now; try again") from None
        identity = _parse_identity(answer.get("status") or {})
        self._answers.keep(digest, identity)
        return identity


def read_token(authorization: str) -> str:
    """Return the token in an ``Authorization`` header: ``Bearer TOKEN``, or Basic with the token as the password.

    Raises:
        OcciError: 401, there is no token.
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
    """Return a hash of ``what`` and a text, so that a header and a token with the same text have different hashes."""
    return hashlib.sha256(f"{what} {text}".encode("utf-8", "surrogateescape")).digest()


def _refuse() -> NoReturn:
    raise OcciError(401, "Authorization: the token is invalid or has expired; get a new one")


def _parse_identity(status: Json) -> Identity | None:
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
