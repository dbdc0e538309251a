"""Passwords of broker users, derived from one master key so that none is stored.

A broker user has logins (:func:`~simyard_adapter.wire.identity_of`): one for each number of the master key, which the
platform team replaces, and for each generation of the credentials of a pool, which the operator counts. The first login
is the identity itself, so an installation that never rotated has no other.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from simyard_adapter.wire import LOGIN_SEPARATOR, identity_of

MASTER_KEY_BYTES = 32
FIRST_NUMBER = 1
_SUFFIX = re.compile(r"([1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """The master key, and its predecessor while workers may still use passwords of that one.

    Attributes:
        number: of the key; the first one is 1.
        previous: the key before; empty when no worker needs it any more.
    """

    key: bytes = field(repr=False)
    number: int = FIRST_NUMBER
    previous: bytes = field(default=b"", repr=False)

    def password(self, login: str) -> str:
        """Return the password of a login under its own key.

        Raises:
            ValueError: the key of that login is not kept any more.
        """
        number = parse_login(login)[0]
        if number == self.number:
            return derive_password(self.key, login)
        if number == self.number - 1 and self.previous:
            return derive_password(self.previous, login)
        raise ValueError(f"the master key number {number} is not kept any more")


def login_name(identity: str, number: int, generation: int) -> str:
    """Return the login of a broker user under a master key's number and a generation of its own."""
    if (number, generation) == (FIRST_NUMBER, 0):
        return identity
    return f"{identity}{LOGIN_SEPARATOR}{number}.{generation}"


def parse_login(login: str) -> tuple[int, int]:
    """Return the master key's number and the generation; those of the first login for a name without a suffix.

    Raises:
        ValueError: the suffix is of no login that :func:`login_name` makes.
    """
    suffix = login.partition(LOGIN_SEPARATOR)[2]
    if not suffix and LOGIN_SEPARATOR not in login:
        return FIRST_NUMBER, 0
    if not (parsed := _SUFFIX.fullmatch(suffix)):
        raise ValueError(f"{identity_of(login)} has no login with the suffix {suffix!r}")
    return int(parsed[1]), int(parsed[2])


def former_logins(identity: str, keys: MasterKeys, generation: int, *, changed_lately: bool) -> Iterable[str]:
    """Return the logins under which workers may still connect, beside the newest one.

    Args:
        identity: of the broker user.
        keys: the master keys.
        generation: the newest one of its credentials.
        changed_lately: workers may still use the generation before.
    """
    numbers = (keys.number, keys.number - 1) if keys.previous else (keys.number,)
    generations = (generation, generation - 1) if changed_lately and generation else (generation,)
    logins = [login_name(identity, number, one) for number in numbers for one in generations]
    return logins[1:]


def new_master_key() -> bytes:
    """A fresh random master key."""
    return secrets.token_bytes(MASTER_KEY_BYTES)


def derive_password(master_key: bytes, user: str) -> str:
    """The password of a broker user: HMAC-SHA256 (RFC 2104) of its name, base64url without padding.

    Raises:
        ValueError: the key is too short to be one of :func:`new_master_key`.
    """
    if len(master_key) < MASTER_KEY_BYTES:
        raise ValueError(f"the master key has {len(master_key)} bytes, at least {MASTER_KEY_BYTES} are needed")
    digest = hmac.new(master_key, b"simyard broker user\0" + user.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
