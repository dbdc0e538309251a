# SPDX-License-Identifier: Apache-2.0
"""Builds the script that starts the adapter in a guest, at every boot.

The script writes its files below /run, the document with mode 0600. An image that is made from the disk of a worker
therefore contains none of these files.
"""

from __future__ import annotations

import base64
import gzip

VARIABLE = "SIMYARD_BOOTSTRAP"
"""The shell variable with the packed document."""
DOCUMENT = "/run/simyard/bootstrap.json"
UNIT = "simyard-adapter.service"
_DMI = "/sys/class/dmi/id"
_IDENTITY = f' --worker "$$(cat {_DMI}/product_serial)" --worker-uid "$$(cat {_DMI}/product_uuid)"'
_SERVICE = """\
[Unit]
Description=Simyard worker
Wants=network-online.target
After={after}
StartLimitIntervalSec=0

[Service]
User=root
StateDirectory=simyard
StateDirectoryMode=0700
WorkingDirectory=/var/lib/simyard
ExecStart=/bin/sh -c 'exec simyard-adapter run --bootstrap {document} --directory /var/lib/simyard{identity}'
Restart=always
RestartSec=2
RestartPreventExitStatus=2 3
KillMode=mixed
StandardOutput=journal+console
StandardError=journal+console
"""
_SCRIPT = """\
#!/bin/sh
# Makes this machine a worker of Simyard, at every boot.
set -eu
{assignment}umask 077
mkdir -p /run/simyard
printf %s "${variable}" | base64 -d | gzip -d >{document}
unset {variable} USER_DATA
umask 022
mkdir -p /run/systemd/system
cat >/run/systemd/system/{unit} <<'END'
{service}END
systemctl daemon-reload
{before}systemctl start --no-block {unit}
"""


def pack_document(document: bytes) -> str:
    """Return the document as the script reads it: gzip, then base64 in one line; equal documents give equal texts."""
    return base64.b64encode(gzip.compress(document, mtime=0)).decode()


def build_start_script(
    *, document: bytes | None = None, identity_from_dmi: bool = False, after: str = "", before: str = ""
) -> str:
    """Return the script, for a POSIX shell and systemd.

    Args:
        document: The document in the script; None if the environment has it, packed, as :data:`VARIABLE`.
        identity_from_dmi: True if machines share the document and SMBIOS names the worker: the system's serial number
            is the Worker's name, its UUID the Worker's uid.
        after: A unit that the adapter waits for, in addition to the network.
        before: Lines of the script that run before the adapter starts.
    """
    service = _SERVICE.format(
        after=f"network-online.target {after}".rstrip(),
        document=DOCUMENT,
        identity=_IDENTITY if identity_from_dmi else "",
    )
    return _SCRIPT.format(
        assignment="" if document is None else _assignment(pack_document(document)),
        variable=VARIABLE,
        document=DOCUMENT,
        unit=UNIT,
        service=service,
        before=before,
    )


def _assignment(text: str) -> str:
    lines = (text[start : start + 76] for start in range(0, len(text), 76))
    return f"{VARIABLE}='\n{chr(10).join(lines)}\n'\n"
