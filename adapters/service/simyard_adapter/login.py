"""The newest login of a worker at the broker, on disk: a new adapter in this directory begins with it.

The bootstrap document has the login that was the newest when the machine was made. It stays the fallback.
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
    """A name and a password that the broker takes."""

    username: str
    password: str = field(repr=False)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Login":
        """Read the body of a request, or the file.

        Raises:
            ValueError: it is none.
        """
        username, password = data.get("username"), data.get("password")
        if not (isinstance(username, str) and username and isinstance(password, str) and password):
            raise ValueError("a login is a username and a password")
        return cls(username, password)


def read_login(directory: Path) -> Optional[Login]:
    """Return the login that was written here; None without one, and for a file that cannot be read."""
    try:
        return Login.from_json(json.loads((directory / _FILE).read_bytes()))
    except (OSError, ValueError, AttributeError):
        return None


def write_login(directory: Path, login: Login) -> None:
    """Keep a login for the next adapter: a file of mode 0600 that is replaced as a whole.

    Raises:
        MachineError: the directory cannot be used.
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
        raise MachineError(f"the login cannot be written to {directory}: {error}") from error
