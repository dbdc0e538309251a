# SPDX-License-Identifier: Apache-2.0
"""Builds the user data for cloud-init (any data source, such as KubeVirt's NoCloud disk)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import yaml

from simyard_adapter.bootstrap import Bootstrap
from simyard_sites.guest.start_script import build_start_script

_SNIFFED = 4096
_HEAD = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{boundary}"\n\n'
_APPEND = "Merge-Type: list(append)+dict(recurse_array)+str()\n"


def build_user_data(document: bytes, own: str = "", ssh_public_keys: Sequence[str] = ()) -> bytes:
    """Return a MIME message that makes a machine a worker; it contains the document's password.

    The adapter's part is a boothook and not cloud-config. A second cloud-config would be merged with the user's, and by
    default it would replace lists such as ``write_files`` and ``runcmd``. cloud-init runs a boothook at every boot, as
    soon as it has the user data. If there is user data too, the adapter starts after cloud-init has applied it, so a
    ready worker has its user data.

    Args:
        document: The bootstrap document. If it names no worker (:func:`simyard_adapter.bootstrap.remove_worker`), the
            machine's SMBIOS must: the system serial number is the Worker's name, the system UUID its uid.
        own: The user data, in any form that cloud-init knows. The message contains it unchanged.
        ssh_public_keys: The keys that may log in as the image's default user, in addition to those in ``own``.

    Raises:
        ValueError: ``document`` is not a bootstrap document.
    """
    script = build_start_script(
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
    """Return the user's part. MIME messages are embedded as such; cloud-init detects the type of all other data."""
    if b"mime-version:" in own[:_SNIFFED].lower():
        return own
    return b"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n" + base64.encodebytes(own)
