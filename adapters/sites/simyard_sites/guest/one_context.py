"""OpenNebula's contextualisation: variables of a virtual machine's CONTEXT."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from simyard_sites.base import InvalidSpecError
from simyard_sites.guest.cloud_init import user_data
from simyard_sites.guest.start_script import VARIABLE, packed, start_script

LONGEST = 128 * 1024 - 1
"""What fits into one environment variable (Linux: MAX_ARG_STRLEN), the name included: guests export them all."""
_OWN = "SIMYARD_USER_SCRIPT"
_FILE = "/var/lib/simyard-user-script"
_RUN_OWN = f"""\
if [ -n "${{{_OWN}:-}}" ] && ! [ -e {_FILE} ]; then
  printf %s "${_OWN}" | base64 -d >{_FILE}
  chmod 700 {_FILE}
  {_FILE} || echo "the user's script ended with $?" >&2
fi
"""


def context(document: bytes, own: str = "", ssh_public_keys: Sequence[str] = ()) -> dict[str, str]:
    """The variables that make a machine a worker; they hold the document's password, and are not yet quoted.

    Guests with OpenNebula's own packages run ``START_SCRIPT_BASE64`` at every boot; those with cloud-init take
    ``USER_DATA``. The former carry out ``own`` only if it is a script (``#!``), once, before the adapter starts.

    Raises:
        InvalidSpecError: something is too large to be handed to a guest.
        ValueError: it is no bootstrap document.
    """
    variables = {
        VARIABLE: packed(document),
        "START_SCRIPT_BASE64": _base64(start_script(before=_RUN_OWN).encode()),
        "USER_DATA": _base64(user_data(document, own, ssh_public_keys)),
        "USER_DATA_ENCODING": "base64",
    }
    if own.startswith("#!"):
        variables[_OWN] = _base64(own.encode())
    if ssh_public_keys:
        variables["SSH_PUBLIC_KEY"] = "\n".join(ssh_public_keys)
    for name, value in variables.items():
        if len(f"{name}={value}".encode()) > LONGEST:
            raise InvalidSpecError(
                f"the worker's contextualisation is too large: {name} takes {len(value)} bytes of {LONGEST};"
                " put large files of spec.connector into the image, or shorten the user data"
            )
    return variables


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
