# SPDX-License-Identifier: Apache-2.0
"""Converts the attributes and mixins of a compute that concern its machine into fields of its Worker. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from fractions import Fraction

from simyard.api import names
from simyard.api.base import Json
from simyard.api.quantities import parse_cores, parse_quantity
from simyard.api.simulation_service import Resources
from simyard.frontend.changes.text_limits import check_keys
from simyard.frontend.entities.catalogue import DEFAULT_SIZE, RESOURCE_TPL_SCHEME, SIZES
from simyard.frontend.entities.computes import (
    MEMORY,
    OPENSTACK_KEY_VALUE,
    OPENSTACK_USER_DATA_VALUE,
    SSH_PUBLIC_KEY,
    USER_DATA_VALUE,
)
from simyard.occi.conflicts import ConflictCause, OcciConflictError
from simyard.occi.errors import OcciError
from simyard.occi.model import Mixin, Value
from simyard.occi.standard import OPENSTACK_PUBLIC_KEY, OPENSTACK_USER_DATA
from simyard.occi.validation import Checked
from simyard.occi.values import drop_zero_fraction, format_value
from simyard.serving.objects import CachedService, CachedWorker


def build_mixins_annotation(draft: Checked) -> dict[str, str]:
    """Return the annotation with the requested mixins that cannot be derived from the fields of the Worker."""
    ids = [
        mixin.id
        for mixin in draft.mixins
        if mixin.scheme == RESOURCE_TPL_SCHEME or mixin.id in (OPENSTACK_USER_DATA, OPENSTACK_PUBLIC_KEY)
    ]
    return {names.ANNOTATION_OCCI_MIXINS: " ".join(ids)} if ids else {}


def replace_template(worker: CachedWorker, added: Iterable[Mixin]) -> dict[str, str]:
    """Return the annotation with the new size template instead of the old one; {} if ``added`` has no size template."""
    new = [mixin.id for mixin in added if mixin.scheme == RESOURCE_TPL_SCHEME]
    if not new:
        return {}
    present = worker.metadata.annotations.get(names.ANNOTATION_OCCI_MIXINS, "").split()
    others = [name for name in present if not name.startswith(RESOURCE_TPL_SCHEME)]
    return {names.ANNOTATION_OCCI_MIXINS: " ".join([*others, *new])}


def check_template(mixin: Mixin, worker: CachedWorker, service: CachedService | None) -> None:
    """Check that a mixin of the provider may replace the present mixin of a compute.

    No site can resize a machine, so only a template of the same size may replace a size template.

    Raises:
        OcciError: 409; the message says what is possible.
    """
    if mixin.scheme != RESOURCE_TPL_SCHEME:
        raise OcciConflictError(
            ConflictCause.FIXED_AT_CREATION,
            f"{mixin.id} is chosen when a compute is created; delete this one and create another with it",
        )
    default = service.resources if service is not None else None
    size = worker.own.resources or default
    templates = SIZES if default is None else {**SIZES, DEFAULT_SIZE: default}
    fitting = [term for term, known in templates.items() if size is not None and _measure(known) == _measure(size)]
    if mixin.term in fitting:
        return
    possible = f"its template may be {' or '.join(fitting)}" if fitting else "no template has its size"
    raise OcciConflictError(
        ConflictCause.FIXED_AT_CREATION,
        f"{mixin.id} has another size than this compute, and no site can resize a machine: {possible}; for this size"
        " create another compute with the template, and delete this one",
    )


def _measure(resources: Resources) -> tuple[int, Fraction]:
    """Return the cores and the bytes of a size."""
    return parse_cores(resources.cpu), parse_quantity(resources.memory)


def pop_given(draft: Checked, attributes: dict[str, Value], name: str) -> Value | None:
    """Remove an attribute, and return its value if the client has set it; None if its value comes from a template."""
    value = attributes.pop(name, None)
    return value if name in draft.given else None


def read_resources(draft: Checked, service: CachedService, cores: Value | None, memory: Value | None) -> Json | None:
    """Return the requested size, from a template or else from the attributes; None for the service's own size.

    The size has the exact memory, so that a client reads the value that it has sent; sites round it up to whole MiB.
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
        memory=f"{format_value(drop_zero_fraction(memory))}Gi" if memory is not None else base.memory,
    ).to_json()


def pop_user_data(attributes: dict[str, Value]) -> str:
    """Remove the attributes with user data, and return the user data."""
    text = str(attributes.pop(USER_DATA_VALUE, ""))
    encoded = str(attributes.pop(OPENSTACK_USER_DATA_VALUE, ""))
    if not encoded:
        return text
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise OcciError(400, f"attribute {OPENSTACK_USER_DATA_VALUE}: the value is not UTF-8 text in base64") from None


def pop_keys(attributes: dict[str, Value]) -> list[str]:
    """Remove the attributes with public keys, and return the keys; each line of the values is one key."""
    texts = [str(attributes.pop(name, "")) for name in (SSH_PUBLIC_KEY, OPENSTACK_KEY_VALUE)]
    keys = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    check_keys(keys)
    return keys
