"""User data for cloud-init (any data source; KubeVirt's NoCloud disk among them)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import yaml

from simyard_adapter.bootstrap import Bootstrap
from simyard_sites.guest.start_script import start_script

_SNIFFED = 4096
_HEAD = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{boundary}"\n\n'
_APPEND = "Merge-Type: list(append)+dict(recurse_array)+str()\n"


def user_data(document: bytes, own: str = "", ssh_public_keys: Sequence[str] = ()) -> bytes:
    """A MIME message that makes a machine a worker; it holds the document's password.

    The adapter's part is a boothook, not cloud-config: cloud-config of the user's own would be merged with it, and by
    default replaces lists such as ``write_files`` and ``runcmd``. cloud-init runs a boothook at every boot, as soon as
    it has the user data. With data of the user's own, the adapter starts when cloud-init has carried it out, so that
    a worker that is ready has all of it.

    Args:
        document: the bootstrap document. If it is shared (:func:`simyard_adapter.bootstrap.shared`), the machine's
            SMBIOS must say which worker it is: system serial number = the Worker's name, system UUID = its uid.
        own: the user's, in any form that cloud-init knows; it arrives as it is.
        ssh_public_keys: may log in as the image's default user, besides those in ``own``.

    Raises:
        ValueError: it is no bootstrap document.
    """
    script = start_script(
        document=document,
        identity_from_dmi=not Bootstrap.from_bytes(document).worker,
        after="cloud-final.service" if own else "",
    )
    parts = [f"Content-Type: text/cloud-boothook\n\n{script}".encode()]
    if own:
        parts.append(_own_part(own.encode()))
    if ssh_public_keys:
        keys = yaml.safe_dump({"ssh_authorized_keys": list(ssh_public_keys)})
        parts.append(f"Content-Type: text/cloud-config\n{_APPEND}\n#cloud-config\n{keys}".encode())
    boundary = f"=={hashlib.sha256(b''.join(parts)).hexdigest()[:32]}=="
    delimiter = f"--{boundary}".encode()
    message = [_HEAD.format(boundary=boundary).encode()]
    for part in parts:
        message += [delimiter, b"\n", part, b"\n"]
    return b"".join([*message, delimiter, b"--\n"])


def _own_part(own: bytes) -> bytes:
    """What cloud-init would take for a MIME message is one within ours; the type of all else is found by cloud-init."""
    if b"mime-version:" in own[:_SNIFFED].lower():
        return own
    return b"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n" + base64.encodebytes(own)
