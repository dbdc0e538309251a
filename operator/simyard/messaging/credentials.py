"""Passwords of broker users, derived from one master key so that none is stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

MASTER_KEY_BYTES = 32


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
