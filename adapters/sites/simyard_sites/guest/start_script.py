"""The script that starts the adapter in a guest, at every boot of it.

What it writes is below /run: the document is 0600, and an image that is made of a worker's disk holds no worker's unit.
"""

from __future__ import annotations

import base64
import gzip

VARIABLE = "SIMYARD_BOOTSTRAP"
"""The shell variable that the script finds the packed document in."""
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


def packed(document: bytes) -> str:
    """The document as the script reads it: gzip, then base64 in one line; the same for the same document."""
    return base64.b64encode(gzip.compress(document, mtime=0)).decode()


def start_script(
    *, document: bytes | None = None, identity_from_dmi: bool = False, after: str = "", before: str = ""
) -> str:
    """The script, for a POSIX shell and systemd.

    Args:
        document: what the script itself brings; None: the environment has it, packed, as :data:`VARIABLE`.
        identity_from_dmi: the document is shared, and the machine's SMBIOS says which worker it is: the system's
            serial number is the Worker's name, its UUID the Worker's uid.
        after: a unit that the adapter waits for, besides the network.
        before: lines of the script that run before the adapter is started.
    """
    service = _SERVICE.format(
        after=f"network-online.target {after}".rstrip(),
        document=DOCUMENT,
        identity=_IDENTITY if identity_from_dmi else "",
    )
    return _SCRIPT.format(
        assignment="" if document is None else _assignment(packed(document)),
        variable=VARIABLE,
        document=DOCUMENT,
        unit=UNIT,
        service=service,
        before=before,
    )


def _assignment(text: str) -> str:
    lines = (text[start : start + 76] for start in range(0, len(text), 76))
    return f"{VARIABLE}='\n{chr(10).join(lines)}\n'\n"
