# SPDX-License-Identifier: Apache-2.0
"""Command ``rotate``, which replaces the key from which all passwords of broker users are derived."""

from __future__ import annotations

import base64
import binascii
import sys
import time

import click

from simyard.api.base import Json
from simyard.api.names import MASTER_KEY_SECRET, SYSTEM_NAMESPACE
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard.cli.output import say
from simyard.messaging.credentials import FIRST_NUMBER, MASTER_KEY_BYTES, make_master_key
from simyard_sites.kubernetes.resource import Resource

POLL_SECONDS = 2.0
PROGRESS_SECONDS = 15.0
MAX_ATTEMPTS = 3
_SECRETS = Resource("", "v1", "secrets", "Secret")


@click.command()
@click.option("--wait/--no-wait", default=True,
              help="Wait until no client uses a former password.")  # fmt: skip
@click.option("--timeout", type=click.IntRange(1), default=4200, show_default=True, metavar="SECONDS",
              help="The longest time to wait. The rotation continues after it.")  # fmt: skip
@click.pass_obj
def rotate(kubectl: Kubectl, wait: bool, timeout: int) -> None:
    """Replace all passwords that Simyard created at the message broker, while the workers continue to work.

    This command is for the platform team. It needs the right to get and update the Secret simyard-broker-master-key in
    the namespace of the platform (-n, by default simyard-system). The password of the broker's administrator stays the
    same.

    If you request a rotation while another rotation is in progress, the new rotation starts after it.
    """
    namespace = kubectl.namespace or SYSTEM_NAMESPACE
    say(_request_rotation(kubectl, namespace))
    if not wait:
        return
    begun = told = time.monotonic()
    while _is_in_progress(kubectl.get(_SECRETS, MASTER_KEY_SECRET, namespace)):
        if time.monotonic() > begun + timeout:
            say(
                f"some workers still use a former password after {timeout} s: the rotation continues",
                err=True,
            )
            sys.exit(1)
        if time.monotonic() > told + PROGRESS_SECONDS:
            told = time.monotonic()
            say(f"waiting for {told - begun:.0f} s: the broker still accepts former passwords", err=True)
        time.sleep(POLL_SECONDS)
    say("done: the broker refuses the former passwords")


def _is_in_progress(secret: Json) -> bool:
    data = secret.get("data") or {}
    return bool(data.get("previous") or data.get("following"))


def _request_rotation(kubectl: Kubectl, namespace: str) -> str:
    """Store a new master key, and return a message for the user.

    If the write conflicts with another write of the Secret, read the Secret again and repeat the write.

    Raises:
        KubectlError: kubectl failed.
        click.ClickException: the Secret has no usable key.
    """
    what = f"secret/{MASTER_KEY_SECRET}"
    for attempt in range(1, MAX_ATTEMPTS + 1):
        secret = kubectl.get(_SECRETS, MASTER_KEY_SECRET, namespace)
        changed = replace_key(secret, make_master_key())
        if changed == secret:
            return f"{what}: a rotation is in progress, and the next one is already requested"
        try:
            kubectl.replace(changed)
        except KubectlError as error:
            if "(Conflict)" not in error.message or attempt == MAX_ATTEMPTS:
                raise
        else:
            break
    if (secret.get("data") or {}).get("previous"):
        return f"{what}: a rotation is in progress; this one starts when that one has ended"
    return f"{what} rotated: the workers receive their new passwords"


def replace_key(secret: Json, key: bytes) -> Json:
    """Return the Secret with a new master key. Its present key becomes the former key.

    While a rotation is in progress, the new key becomes the following key, unless there is a following key already.

    Raises:
        click.ClickException: the Secret has no usable key.
    """
    data = secret.get("data") or {}
    try:
        number = int(base64.b64decode(data.get("number") or "").decode() or FIRST_NUMBER)
        if len(base64.b64decode(data["key"], validate=True)) < MASTER_KEY_BYTES:
            raise ValueError("it is too short")
    except (KeyError, ValueError, binascii.Error) as error:
        name = secret["metadata"]["name"]
        raise click.ClickException(f"secret/{name} has no usable key ({error}): restore it from a backup") from None
    encoded = base64.b64encode(key).decode()
    if data.get("previous"):
        return {**secret, "data": {**data, "following": data.get("following") or encoded}}
    new = {"key": encoded, "number": base64.b64encode(str(number + 1).encode()).decode(), "previous": data["key"]}
    return {**secret, "data": {name: value for name, value in data.items() if name != "following"} | new}
