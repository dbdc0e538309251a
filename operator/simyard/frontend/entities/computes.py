# SPDX-License-Identifier: Apache-2.0
"""Converts a Worker into an OCCI compute, with the amqplink to its service adapter. Pure."""

from __future__ import annotations

import base64
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from simyard.api.names import ANNOTATION_OCCI_ATTRIBUTES, ANNOTATION_OCCI_MIXINS, Reason
from simyard.api.quantities import parse_cores, parse_quantity
from simyard.frontend.entities.catalogue import (
    OBSERVED,
    PREFIX,
    RESOURCE_TPL_SCHEME,
    WORKER,
    ServiceCategories,
    find_size_term,
)
from simyard.frontend.entities.file_links import render_file
from simyard.occi.model import RESOURCE, Link, Model, Resource, Value
from simyard.occi.standard import (
    AMQPLINK,
    COMPUTE,
    COMPUTE_ACTION_SCHEME,
    OPENSTACK_PUBLIC_KEY,
    OPENSTACK_USER_DATA,
    SSH_KEY,
    USER_DATA,
)
from simyard.occi.values import drop_zero_fraction
from simyard.serving.objects import CachedService, CachedWorker
from simyard.serving.values import Observed
from simyard_sites.base import MachineState

COMPUTES = "/compute/"
AMQPLINKS = "/amqplink/"
QUEUE = "occi.amqplink.queue"
SSH_PUBLIC_KEY = "occi.credentials.ssh.publickey"
OPENSTACK_KEY_VALUE = "org.openstack.credentials.publickey.data"
USER_DATA_VALUE = "occi.compute.userdata"
OPENSTACK_USER_DATA_VALUE = "org.openstack.compute.user_data"
HOSTNAME = "occi.compute.hostname"
CORES = "occi.compute.cores"
MEMORY = "occi.compute.memory"
_KEYS = {SSH_KEY: SSH_PUBLIC_KEY, OPENSTACK_PUBLIC_KEY: OPENSTACK_KEY_VALUE}
_FAILED = frozenset({Reason.MACHINE_FAILED, Reason.MACHINE_LOST})
_REGISTERED = frozenset({Reason.DRAINING, Reason.DRAINED, Reason.ADAPTER_DISCONNECTED})


class ComputeState(enum.StrEnum):
    """The state of a compute (GFD.184)."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    SUSPENDED = "suspended"
    ERROR = "error"


_TERMS: Mapping[ComputeState, tuple[str, ...]] = {
    ComputeState.ACTIVE: ("stop", "restart", "suspend"),
    ComputeState.INACTIVE: ("start",),
    ComputeState.SUSPENDED: ("start",),
    ComputeState.ERROR: (),
}
"""The actions in each state (GFD.184 3.1.2), without ``save``, because no site can save an image of a machine."""
_ON_THE_WAY: Mapping[tuple[ComputeState, str], tuple[str, ...]] = {
    (ComputeState.ACTIVE, "Stopped"): ("start", "stop", "suspend"),
    (ComputeState.ACTIVE, "Suspended"): ("start", "stop", "suspend"),
    (ComputeState.INACTIVE, "Running"): ("start", "stop"),
    (ComputeState.SUSPENDED, "Running"): ("start", "stop"),
}
"""The actions while the machine changes its state: the opposite action, and the requested action itself."""
ACTIONS: Mapping[tuple[ComputeState, str], tuple[str, ...]] = {
    (state, power_state): tuple(
        COMPUTE_ACTION_SCHEME + term for term in _ON_THE_WAY.get((state, power_state), _TERMS[state])
    )
    for state in ComputeState
    for power_state in ("Running", "Stopped", "Suspended")
}
"""The ids of the possible actions, by the state of the compute and the desired power state of its machine."""


@dataclass(frozen=True, slots=True)
class ComputeContext:
    """Data of a compute in addition to its Worker.

    Attributes:
        id: the OCCI id.
        service: the service; if it does not exist, ``service`` and ``categories`` are None.
        categories: the categories of the service.
        observed: the newest values of the service's attributes.
        mixins: the ids of the user mixins of the compute.
        links: the links that clients made from the compute, and its network interfaces.
        link_mixins: the ids of the user mixins of its amqplink.
    """

    id: str
    service: CachedService | None = None
    categories: ServiceCategories | None = None
    observed: Mapping[str, Observed] | None = None
    mixins: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    link_mixins: tuple[str, ...] = ()


def compute_state(worker: CachedWorker) -> ComputeState:
    """Return the state of a compute: it is active while its service is registered and its machine runs."""
    reason, machine = worker.state.reason, worker.machine_state
    if reason in _FAILED or machine == MachineState.FAILED:
        return ComputeState.ERROR
    if machine == MachineState.SUSPENDED:
        return ComputeState.SUSPENDED
    if machine == MachineState.STOPPED:
        return ComputeState.INACTIVE
    if worker.state.good or (machine == MachineState.RUNNING and reason in _REGISTERED):
        return ComputeState.ACTIVE
    return ComputeState.INACTIVE


def takes_actions(worker: CachedWorker) -> bool:
    """Return true if users can call actions of a Worker: it is Ready, and no stop or restart is requested."""
    return worker.state.good and worker.power_state == "Running" and worker.restarts <= worker.restarted


def find_size_mixin(worker: CachedWorker) -> str | None:
    """Return the id of the template with a compute's size; None if no template has this size."""
    term = find_size_term(worker.own.resources)
    return RESOURCE_TPL_SCHEME + term if term is not None else None


def list_provider_mixins(worker: CachedWorker) -> tuple[str, ...]:
    """Return the ids of a compute's provider mixins, without the mixins of its service, in their requested order."""
    asked = worker.metadata.annotations.get(ANNOTATION_OCCI_MIXINS, "").split()
    found = list(asked)
    if (
        not any(name.startswith(RESOURCE_TPL_SCHEME) for name in asked)
        and (size := find_size_mixin(worker)) is not None
    ):
        found.append(size)
    if worker.own.ssh_public_keys and OPENSTACK_PUBLIC_KEY not in asked:
        found.append(SSH_KEY)
    if worker.own.user_data and OPENSTACK_USER_DATA not in asked:
        found.append(USER_DATA)
    return tuple(dict.fromkeys(found))


def build_compute(worker: CachedWorker, known: ComputeContext, model: Model) -> Resource:
    """Return the compute of a Worker."""
    state = compute_state(worker)
    categories = known.categories
    own = list_provider_mixins(worker)
    mixins = [categories.template.id] if categories is not None else []
    mixins += [name for name in own if name.startswith(RESOURCE_TPL_SCHEME)]
    if categories is not None:
        mixins.append(categories.interface.id)
    mixins.append(WORKER)
    mixins += [name for name in own if name not in mixins]
    mixins += known.mixins
    attributes: dict[str, Value] = {
        **_size(worker, known.service),
        HOSTNAME: worker.own.hostname or worker.metadata.name,
        "occi.compute.state": state.value,
    }
    if message := _message(worker, state):
        attributes["occi.compute.state.message"] = message
    attributes["org.simyard.worker"] = worker.metadata.name
    attributes["org.simyard.service"] = worker.service
    attributes["org.simyard.site"] = worker.site
    if worker.pool:
        attributes["org.simyard.pool"] = worker.pool
    if worker.addresses:
        attributes["org.simyard.address"] = worker.addresses[0].ip
    if worker.own.ssh_public_keys:
        for name in [name for mixin, name in _KEYS.items() if mixin in own]:
            attributes[name] = "\n".join(worker.own.ssh_public_keys)
    if (user_data := worker.own.user_data) and OPENSTACK_USER_DATA in own:
        attributes[OPENSTACK_USER_DATA_VALUE] = base64.b64encode(user_data.encode()).decode()
    elif user_data:
        attributes[USER_DATA_VALUE] = user_data
    if ANNOTATION_OCCI_ATTRIBUTES in worker.metadata.annotations:
        specs = model.collect_specs((*mixins, COMPUTE))
        kept = read_kept_attributes(worker)
        attributes.update((name, value) for name, value in kept.items() if name in specs and name not in attributes)
    attributes.update(_values(known))
    actions = ACTIONS[state, worker.power_state]
    if takes_actions(worker) and categories is not None:
        actions += categories.interface.actions
    return Resource(
        COMPUTE,
        known.id,
        COMPUTES + known.id,
        tuple(mixins),
        attributes,
        actions,
        (build_amqplink(worker, known, inline=True), *known.links),
        worker.own.title or worker.metadata.name,
        worker.own.summary,
    )


def build_amqplink(worker: CachedWorker, known: ComputeContext, *, inline: bool = False) -> Link:
    """Return the link from a compute to the queue of its service adapter.

    With ``inline``, the link is for the rendering of its compute: it has no attributes of the service, because the
    compute has them.
    """
    categories = known.categories
    interface = (categories.interface.id,) if categories is not None else ()
    actions = categories.interface.actions if categories is not None and takes_actions(worker) else ()
    values = {} if inline else _values(known)
    return Link(
        AMQPLINK,
        known.id,
        AMQPLINKS + known.id,
        COMPUTES + known.id,
        f"amqp:///{worker.queue}",
        interface + known.link_mixins,
        {QUEUE: worker.queue, **values},
        actions,
        worker.service,
        (RESOURCE,),
        COMPUTE,
    )


def read_kept_attributes(worker: CachedWorker) -> dict[str, Value]:
    """Return the attributes that clients set and Simyard does not use."""
    try:
        kept = orjson.loads(worker.metadata.annotations.get(ANNOTATION_OCCI_ATTRIBUTES, "{}"))
    except orjson.JSONDecodeError:
        return {}
    return {name: value for name, value in kept.items() if value is not None} if isinstance(kept, dict) else {}


def find_oldest_time(service: CachedService | None, observed: Mapping[str, Observed]) -> float | None:
    """Return the time at which the oldest shown value was observed (seconds since the epoch); None without values."""
    if service is None:
        return None
    declared = service.interface.attributes
    return min((observed[item.name].time for item in declared if item.name in observed), default=None)


def _values(known: ComputeContext) -> dict[str, Value]:
    """Return the attributes of the service with their values, and the time at which the oldest value was observed."""
    if known.service is None or not known.observed:
        return {}
    observed = known.observed
    values: dict[str, Value] = {
        PREFIX + item.name: render_file(value) if item.holds_files else value
        for item in known.service.interface.attributes
        if (found := observed.get(item.name)) is not None and (value := found.value) is not None
    }
    if (time := find_oldest_time(known.service, observed)) is not None:
        text = datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")
        values[OBSERVED] = text.replace("+00:00", "Z")
    return values


def _size(worker: CachedWorker, service: CachedService | None) -> dict[str, Value]:
    resources = worker.own.resources or (service.resources if service is not None else None)
    if resources is None:
        return {}
    memory = float(parse_quantity(resources.memory) / 2**30)
    return {CORES: parse_cores(resources.cpu), MEMORY: drop_zero_fraction(round(memory, 12))}


def _message(worker: CachedWorker, state: ComputeState) -> str:
    return "" if worker.state.good and state is ComputeState.ACTIVE else str(worker.state)
