"""``rotate``: replace the key from which the broker's passwords are derived."""

from __future__ import annotations

import base64
import binascii
import sys
import time

import click

from simyard.api.base import Json
from simyard.api.names import MASTER_KEY_SECRET, SYSTEM_NAMESPACE
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import say
from simyard.messaging.credentials import FIRST_NUMBER, MASTER_KEY_BYTES, new_master_key
from simyard_sites.kubernetes.resource import Resource

LOOK_SECONDS = 2.0
TELL_SECONDS = 15.0
_SECRETS = Resource("", "v1", "secrets", "Secret")


@click.command()
@click.option("--wait/--no-wait", default=True, help="Wait until nobody uses a former password any more.")
@click.option("--timeout", type=click.IntRange(1), default=2400, show_default=True, metavar="SECONDS",
              help="Wait so long at most; the rotation goes on afterwards.")  # fmt: skip
@click.pass_obj
def rotate(kubectl: Kubectl, wait: bool, timeout: int) -> None:
    """Replace all passwords that Simyard made at the message broker, while workers go on.

    For the platform team: it takes the rights to get and update the Secret simyard-broker-master-key in the platform's
    namespace (-n, by default simyard-system). The administrator's own password is not touched.
    """
    namespace = kubectl.namespace or SYSTEM_NAMESPACE
    secret = kubectl.get(_SECRETS, MASTER_KEY_SECRET, namespace)
    if (secret.get("data") or {}).get("previous"):
        raise click.ClickException(
            "a rotation is under way: workers still use passwords of the former key; wait until it has ended"
        )
    kubectl.replace(rotated(secret, new_master_key()))
    say(f"secret/{MASTER_KEY_SECRET} rotated: workers get their new passwords")
    if not wait:
        return
    begun = told = time.monotonic()
    while kubectl.get(_SECRETS, MASTER_KEY_SECRET, namespace)["data"].get("previous"):
        if time.monotonic() > begun + timeout:
            say(f"some workers still use a former password after {timeout} s", err=True)
            sys.exit(1)
        if time.monotonic() > told + TELL_SECONDS:
            told = time.monotonic()
            say(f"{told - begun:.0f} s so far: former passwords are still accepted", err=True)
        time.sleep(LOOK_SECONDS)
    say("done: the former passwords are refused")


def rotated(secret: Json, key: bytes) -> Json:
    """Return the Secret with a new master key, and its present key as the former one.

    Raises:
        click.ClickException: the Secret has no key.
    """
    data = secret.get("data") or {}
    try:
        number = int(base64.b64decode(data.get("number") or "").decode() or FIRST_NUMBER)
        if len(base64.b64decode(data["key"], validate=True)) < MASTER_KEY_BYTES:
            raise ValueError("it is too short")
    except (KeyError, ValueError, binascii.Error) as error:
        name = secret["metadata"]["name"]
        raise click.ClickException(f"secret/{name} has no usable key ({error}): restore it from a backup") from None
    new = {"key": key, "number": str(number + 1).encode()}
    encoded = {name: base64.b64encode(value).decode() for name, value in new.items()}
    return {**secret, "data": {**data, **encoded, "previous": data["key"]}}
