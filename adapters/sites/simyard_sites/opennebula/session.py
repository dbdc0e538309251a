"""The secret that each call carries: as the Secret has it, or a login token of limited life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from simyard_sites.base import InternalError, SiteError
from simyard_sites.opennebula.errors import refusal
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.wire import Answer, Call

log = logging.getLogger(__name__)

RENEWAL = 0.75
"""A token is replaced after this share of its life."""
AGAIN_SECONDS = 60.0
"""After this a token is asked for again, where there was none to be had."""
_TOO_MANY = re.compile(r"max\w* number of tokens", re.IGNORECASE)
_ANY_GROUP = -1
Ask = Callable[[Call, str], Awaitable[Answer]]
"""Makes one call with that session."""


@dataclass(frozen=True, slots=True)
class _Token:
    session: str
    value: str
    renewed_at: float


class Session:
    """Gives the session of the next call.

    With ``loginTokenSeconds`` the password goes over the wire only to get a token; a token is taken back when the next
    one is there, and at the end. OpenNebula keeps ten per account at most: while others have them all (processes that
    were killed, until theirs expire), the password is used itself.
    """

    def __init__(self, settings: Settings, ask: Ask) -> None:
        self._settings = settings
        self._own = f"{settings.username}:{settings.secret}"
        self._ask = ask
        self._token: _Token | None = None
        self._renewing = asyncio.Lock()

    async def current(self) -> str:
        """The session to be used now.

        Raises:
            SiteError: no token was given.
        """
        if not self._settings.token_seconds:
            return self._own
        async with self._renewing:
            token, now = self._token, asyncio.get_running_loop().time()
            if token is None or now >= token.renewed_at:
                self._token = await self._login(now)
                if token is not None:
                    await self._take_back(token)
        return self._token.session if self._token is not None else self._own

    def refused(self, session: str) -> bool:
        """That session is not good any more; says whether another one can be had."""
        if self._token is not None and self._token.session == session:
            self._token = None
        return session != self._own

    async def aclose(self) -> None:
        """Take the token back, as far as that can be done."""
        token, self._token = self._token, None
        if token is not None:
            await self._take_back(token)

    async def _login(self, now: float) -> _Token:
        seconds = self._settings.token_seconds
        answer = await self._ask(self._call("", seconds), self._own)
        if isinstance(answer, Exception) and _TOO_MANY.search(str(answer)):
            log.warning("the account has all the login tokens that OpenNebula permits: the password is used for now")
            return _Token(self._own, "", now + AGAIN_SECONDS)
        if isinstance(answer, Exception):
            raise refusal(answer, "get login tokens for itself (one.user.login)") from answer
        if not isinstance(answer, str) or not answer:
            raise InternalError("one.user.login gave no token")
        return _Token(f"{self._settings.username}:{answer}", answer, now + seconds * RENEWAL)

    async def _take_back(self, token: _Token) -> None:
        if not token.value:  # OpenNebula would take all tokens of the account back
            return
        with contextlib.suppress(SiteError):
            await self._ask(self._call(token.value, 0), self._own)

    def _call(self, token: str, seconds: int) -> Call:
        return Call("one.user.login", (self._settings.username, token, seconds, _ANY_GROUP))
