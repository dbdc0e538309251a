# SPDX-License-Identifier: Apache-2.0
"""Builds OpenNebula's contextualisation: the variables of a virtual machine's CONTEXT."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from simyard_sites.base import InvalidSpecError
from simyard_sites.guest.cloud_init import build_user_data
from simyard_sites.guest.start_script import VARIABLE, build_start_script, pack_document

MAX_VARIABLE_BYTES = 128 * 1024 - 1
"""Limit of one environment variable with its name (Linux: MAX_ARG_STRLEN): guests export all variables."""
_OWN = "SIMYARD_USER_SCRIPT"
_FILE = "/var/lib/simyard-user-script"
_RUN_OWN = f"""\
if [ -n "${{{_OWN}:-}}" ] && ! [ -e {_FILE} ]; then
  printf %s "${_OWN}" | base64 -d >{_FILE}
  chmod 700 {_FILE}
  {_FILE} || echo "the user's script ended with $?" >&2
fi
"""


def build_context(document: bytes, own: str = "", ssh_public_keys: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that make a machine a worker, not yet quoted; they contain the document's password.

    Guests with OpenNebula's own packages run ``START_SCRIPT_BASE64`` at every boot; guests with cloud-init read
    ``USER_DATA``. OpenNebula's packages run ``own`` only if it is a script (``#!``), once, before the adapter starts.

    Raises:
        InvalidSpecError: A variable is too large for a guest.
        ValueError: ``document`` is not a bootstrap document.
    """
    variables = {
        VARIABLE: pack_document(document),
        "START_SCRIPT_BASE64": _base64(build_start_script(before=_RUN_OWN).encode()),
        "USER_DATA": _base64(build_user_data(document, own, ssh_public_keys)),
        "USER_DATA_ENCODING": "base64",
    }
    if own.startswith("#!"):
        variables[_OWN] = _base64(own.encode())
    if ssh_public_keys:
        variables["SSH_PUBLIC_KEY"] = "\n".join(ssh_public_keys)
    for name, value in variables.items():
        if len(f"{name}={value}".encode()) > MAX_VARIABLE_BYTES:
            raise InvalidSpecError(
                f"the contextualisation is too large: {name} has {len(value)} of at most {MAX_VARIABLE_BYTES} bytes;"
                " move large files of spec.connector into the image, or shorten the user data"
            )
    return variables


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
