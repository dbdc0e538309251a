# SPDX-License-Identifier: Apache-2.0
"""The newest login of a worker at the broker, stored on disk: an adapter that restarts in this directory uses it.

The bootstrap document contains the login that was the newest when the machine was created. It remains the fallback.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Optional

from simyard_adapter.errors import MachineError

_FILE = "login.json"


@dataclass(frozen=True)
class Login:
    """A user name and a password for the broker."""

    username: str
    password: str = field(repr=False)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Login":
        """Read a login from the body of a request or from the file.

        Raises:
            ValueError: The data is not a login.
        """
        username, password = data.get("username"), data.get("password")
        if not (isinstance(username, str) and username and isinstance(password, str) and password):
            raise ValueError("must have a username and a password")
        return cls(username, password)


def read_login(directory: Path) -> Optional[Login]:
    """Return the stored login; None if there is no file or it cannot be read."""
    try:
        return Login.from_json(json.loads((directory / _FILE).read_bytes()))
    except (OSError, ValueError, AttributeError):
        return None


def write_login(directory: Path, login: Login) -> None:
    """Store a login in a file of mode 0600, which is replaced atomically.

    Raises:
        MachineError: The directory cannot be used.
    """
    path, new = directory / _FILE, directory / f"{_FILE}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"username": login.username, "password": login.password}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise MachineError(f"cannot write the login to {directory}: {error}") from error
