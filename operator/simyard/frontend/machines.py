"""What a client asks of the machine of a compute, as fields of its Worker. Pure."""

from __future__ import annotations

import base64
import binascii

from simyard.api import names
from simyard.api.base import Json
from simyard.api.simulation_service import Resources
from simyard.apiserver.objects import CachedService
from simyard.frontend.catalogue import RESOURCE_TPL_SCHEME, SIZES
from simyard.frontend.computes import (
    MEMORY,
    OPENSTACK_KEY_VALUE,
    OPENSTACK_USER_DATA_VALUE,
    SSH_PUBLIC_KEY,
    USER_DATA_VALUE,
)
from simyard.frontend.limits import check_keys
from simyard.occi.errors import OcciError
from simyard.occi.model import Value
from simyard.occi.standard import OPENSTACK_PUBLIC_KEY, OPENSTACK_USER_DATA
from simyard.occi.validation import Checked
from simyard.occi.values import plain, text_of


def named_mixins(draft: Checked) -> dict[str, str]:
    """The mixins that are shown as they were asked for: the fields of the Worker do not tell them from others."""
    ids = [
        mixin.id
        for mixin in draft.mixins
        if mixin.scheme == RESOURCE_TPL_SCHEME or mixin.id in (OPENSTACK_USER_DATA, OPENSTACK_PUBLIC_KEY)
    ]
    return {names.ANNOTATION_OCCI_MIXINS: " ".join(ids)} if ids else {}


def taken(draft: Checked, attributes: dict[str, Value], name: str) -> Value | None:
    """What the client itself asked for, rather than its template; it is taken out of the attributes."""
    value = attributes.pop(name, None)
    return value if name in draft.given else None


def resources_of(draft: Checked, service: CachedService, cores: Value | None, memory: Value | None) -> Json | None:
    """Return the size that is asked for; None: the service's own. A template with a size overrides the attributes.

    Memory is kept to the digit, so that a client reads what it has sent; sites round it up to whole MiB.
    """
    terms = [mixin.term for mixin in draft.mixins if mixin.scheme == RESOURCE_TPL_SCHEME]
    template = SIZES.get(terms[0]) if terms else None
    if template is not None:
        return template.to_json()
    if cores is None and memory is None:
        return None
    base = service.resources
    if memory is not None and float(str(memory)) * 1024 < 1:
        raise OcciError(400, f"attribute {MEMORY}: {memory} GB is less than 1 MiB")
    return Resources(
        cpu=int(str(cores)) if cores is not None else base.cpu,
        memory=f"{text_of(plain(memory))}Gi" if memory is not None else base.memory,
    ).to_json()


def user_data_of(attributes: dict[str, Value]) -> str:
    """The user data, out of the attributes."""
    text = str(attributes.pop(USER_DATA_VALUE, ""))
    encoded = str(attributes.pop(OPENSTACK_USER_DATA_VALUE, ""))
    if not encoded:
        return text
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise OcciError(400, f"attribute {OPENSTACK_USER_DATA_VALUE}: is not UTF-8 text in base64") from None


def keys_of(attributes: dict[str, Value]) -> list[str]:
    """The public keys, one per line, out of the attributes."""
    texts = [str(attributes.pop(name, "")) for name in (SSH_PUBLIC_KEY, OPENSTACK_KEY_VALUE)]
    keys = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    check_keys(keys)
    return keys
