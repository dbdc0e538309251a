# SPDX-License-Identifier: Apache-2.0
"""Keeps the session that each call contains: the password or token in the Secret, or a login token that expires."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from simyard_sites.base import InternalError, SiteError
from simyard_sites.opennebula.errors import make_call_error
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.wire import Answer, RpcCall

log = logging.getLogger(__name__)

RENEWAL_SHARE = 0.75
"""The share of a token's lifetime after which the session replaces the token."""
TOKEN_RETRY_SECONDS = 60.0
"""The time after which the session asks for a token again, if OpenNebula gave none."""
_TOO_MANY = re.compile(r"max\w* number of tokens", re.IGNORECASE)
_ANY_GROUP = -1
Ask = Callable[[RpcCall, str], Awaitable[Answer]]
"""A function that makes one call with this session."""


@dataclass(frozen=True, slots=True)
class _Token:
    session: str
    value: str
    renewed_at: float


class Session:
    """The source of each call's session.

    With ``loginTokenSeconds``, the session sends the password only to get a token. It revokes a token when it has the
    next one, and at the end. OpenNebula keeps at most ten tokens per account. While other processes hold all of them
    (also killed processes, until their tokens expire), the session uses the password.
    """

    def __init__(self, settings: Settings, ask: Ask) -> None:
        self._settings = settings
        self._own = f"{settings.username}:{settings.secret}"
        self._ask = ask
        self._token: _Token | None = None
        self._renewing = asyncio.Lock()

    async def get_current(self) -> str:
        """Return the session for the next call.

        Raises:
            SiteError: OpenNebula gave no token.
        """
        if not self._settings.token_seconds:
            return self._own
        async with self._renewing:
            token, now = self._token, asyncio.get_running_loop().time()
            if token is None or now >= token.renewed_at:
                self._token = await self._login(now)
                if token is not None:
                    await self._revoke(token)
        return self._token.session if self._token is not None else self._own

    def discard_session(self, session: str) -> bool:
        """Discard a session that OpenNebula refused; return True if another session is available."""
        if self._token is not None and self._token.session == session:
            self._token = None
        return session != self._own

    async def aclose(self) -> None:
        """Revoke the token, if possible."""
        token, self._token = self._token, None
        if token is not None:
            await self._revoke(token)

    async def _login(self, now: float) -> _Token:
        seconds = self._settings.token_seconds
        answer = await self._ask(self._call("", seconds), self._own)
        if isinstance(answer, Exception) and _TOO_MANY.search(str(answer)):
            log.warning("the account has reached OpenNebula's limit of login tokens: using the password for now")
            return _Token(self._own, "", now + TOKEN_RETRY_SECONDS)
        if isinstance(answer, Exception):
            raise make_call_error(answer, "get login tokens for itself (one.user.login)") from answer
        if not isinstance(answer, str) or not answer:
            raise InternalError("one.user.login returned no token")
        return _Token(f"{self._settings.username}:{answer}", answer, now + seconds * RENEWAL_SHARE)

    async def _revoke(self, token: _Token) -> None:
        if not token.value:  # An empty token would revoke all tokens of the account.
            return
        with contextlib.suppress(SiteError):
            await self._ask(self._call(token.value, 0), self._own)

    def _call(self, token: str, seconds: int) -> RpcCall:
        return RpcCall("one.user.login", (self._settings.username, token, seconds, _ANY_GROUP))
