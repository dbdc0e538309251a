# SPDX-License-Identifier: Apache-2.0
"""Passwords of broker users. They are derived from one master key, so that the platform stores no password.

A broker user has one login for each pair of a master key's number and a generation of the pool's credentials
(:func:`~simyard_adapter.wire.parse_identity`). The number grows when the platform team replaces the master key. The
generation grows when the operator changes the password of one pool. The first login is the identity itself, so an
installation without rotations has no other logins.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from simyard_adapter.wire import LOGIN_SEPARATOR, parse_identity

MASTER_KEY_BYTES = 32
FIRST_NUMBER = 1
_SUFFIX = re.compile(r"([1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """The master key, and the previous key as long as workers may use passwords that are derived from it.

    Attributes:
        key: the present master key.
        number: the number of the present key; the first key has number 1.
        previous: the previous key; empty if no worker needs it any more.
        following: the key of the rotation that starts when the present one ends; empty if no rotation is requested.
    """

    key: bytes = field(repr=False)
    number: int = FIRST_NUMBER
    previous: bytes = field(default=b"", repr=False)
    following: bytes = field(default=b"", repr=False)

    def end_rotation(self) -> MasterKeys:
        """Return the keys after a rotation: without the previous key, or with the keys of the next rotation."""
        if self.following:
            return MasterKeys(self.following, self.number + 1, self.key)
        return MasterKeys(self.key, self.number)

    def derive_password(self, login: str) -> str:
        """Return the password of a login; it is derived from the key whose number the login contains.

        Raises:
            ValueError: the key with this number was deleted.
        """
        number = parse_login(login)[0]
        if number == self.number:
            return derive_password(self.key, login)
        if number == self.number - 1 and self.previous:
            return derive_password(self.previous, login)
        raise ValueError(f"the master key number {number} is not kept any more")


def make_login(identity: str, number: int, generation: int) -> str:
    """Return the login of a broker user for a number of the master key and a generation of the user's credentials."""
    if (number, generation) == (FIRST_NUMBER, 0):
        return identity
    return f"{identity}{LOGIN_SEPARATOR}{number}.{generation}"


def parse_login(login: str) -> tuple[int, int]:
    """Return the master key's number and the generation that a login contains; without a suffix, it is the first login.

    Raises:
        ValueError: the name has a suffix that :func:`make_login` never makes.
    """
    suffix = login.partition(LOGIN_SEPARATOR)[2]
    if not suffix and LOGIN_SEPARATOR not in login:
        return FIRST_NUMBER, 0
    if not (parsed := _SUFFIX.fullmatch(suffix)):
        raise ValueError(f"{parse_identity(login)} has no login with the suffix {suffix!r}")
    return int(parsed[1]), int(parsed[2])


def list_former_logins(identity: str, keys: MasterKeys, generation: int, *, changed_lately: bool) -> Iterable[str]:
    """Return the former logins with which workers may still connect.

    Args:
        identity: identity of the broker user.
        keys: the master keys.
        generation: the newest generation of the user's credentials.
        changed_lately: True if workers may still use the previous generation.
    """
    numbers = (keys.number, keys.number - 1) if keys.previous else (keys.number,)
    generations = (generation, generation - 1) if changed_lately and generation else (generation,)
    logins = [make_login(identity, number, one) for number in numbers for one in generations]
    return logins[1:]


def make_master_key() -> bytes:
    """Return a new random master key."""
    return secrets.token_bytes(MASTER_KEY_BYTES)


def derive_password(master_key: bytes, user: str) -> str:
    """Return the password of a broker user: HMAC-SHA256 (RFC 2104) of its name, base64url without padding.

    Raises:
        ValueError: the key is too short.
    """
    if len(master_key) < MASTER_KEY_BYTES:
        raise ValueError(f"the master key has {len(master_key)} bytes, at least {MASTER_KEY_BYTES} are needed")
    digest = hmac.new(master_key, b"simyard broker user\0" + user.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
