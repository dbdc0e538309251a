"""A Worker as an OCCI compute, with the amqplink to its service. Pure."""

from __future__ import annotations

import base64
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from simyard.api.names import ANNOTATION_OCCI_ATTRIBUTES, ANNOTATION_OCCI_MIXINS, Reason
from simyard.api.quantities import cores_of, parse_quantity
from simyard.apiserver.objects import CachedService, CachedWorker
from simyard.apiserver.values import Observed
from simyard.frontend.catalogue import (
    OBSERVED,
    PREFIX,
    RESOURCE_TPL_SCHEME,
    WORKER,
    ServiceCategories,
    size_of,
)
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
from simyard.occi.values import plain
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
    """The states of a compute (GFD.184)."""

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
"""What can be done in each state (GFD.184 3.1.2); no site can save an image of a machine."""
_ON_THE_WAY: Mapping[tuple[ComputeState, str], tuple[str, ...]] = {
    (ComputeState.ACTIVE, "Stopped"): ("start", "stop", "suspend"),
    (ComputeState.ACTIVE, "Suspended"): ("start", "stop", "suspend"),
    (ComputeState.INACTIVE, "Running"): ("start", "stop"),
    (ComputeState.SUSPENDED, "Running"): ("start", "stop"),
}
"""Where something else was asked for already: the way back, too, and the same again, which changes nothing."""
ACTIONS: Mapping[tuple[ComputeState, str], tuple[str, ...]] = {
    (state, power_state): tuple(
        COMPUTE_ACTION_SCHEME + term for term in _ON_THE_WAY.get((state, power_state), _TERMS[state])
    )
    for state in ComputeState
    for power_state in ("Running", "Stopped", "Suspended")
}
"""What can be done in each state, by what the machine should do."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a compute beside its Worker.

    Attributes:
        id: its OCCI id.
        service: its service, None if that is not published (any more), like ``categories``.
        observed: the newest values of the service's attributes.
        mixins: the ids of the user mixins that it has.
        links: what clients linked it to.
        link_mixins: the ids of the user mixins that its amqplink has.
    """

    id: str
    service: CachedService | None = None
    categories: ServiceCategories | None = None
    observed: Mapping[str, Observed] | None = None
    mixins: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    link_mixins: tuple[str, ...] = ()


def state_of(worker: CachedWorker) -> ComputeState:
    """The state of a compute: active once its service has registered, as long as its machine runs."""
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
    """Whether its service can be called: nobody has stopped or suspended it, or has it restarted just now."""
    return worker.state.good and worker.power_state == "Running" and worker.restarts <= worker.restarted


def size_mixin(worker: CachedWorker) -> str | None:
    """The id of the template of a compute's size, None if no template has it."""
    term = size_of(worker.own.resources)
    return RESOURCE_TPL_SCHEME + term if term is not None else None


def own_mixins(worker: CachedWorker) -> tuple[str, ...]:
    """The ids of the provider's mixins that a compute has beside those of its service, as its client named them."""
    asked = worker.metadata.annotations.get(ANNOTATION_OCCI_MIXINS, "").split()
    found = list(asked)
    if not any(name.startswith(RESOURCE_TPL_SCHEME) for name in asked) and (size := size_mixin(worker)) is not None:
        found.append(size)
    if worker.own.ssh_public_keys and OPENSTACK_PUBLIC_KEY not in asked:
        found.append(SSH_KEY)
    if worker.own.user_data and OPENSTACK_USER_DATA not in asked:
        found.append(USER_DATA)
    return tuple(dict.fromkeys(found))


def compute(worker: CachedWorker, known: Known, model: Model) -> Resource:
    """The compute of a Worker."""
    state = state_of(worker)
    categories = known.categories
    own = own_mixins(worker)
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
        specs = model.specs((*mixins, COMPUTE))
        kept = kept_attributes(worker)
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
        (amqplink(worker, known, inline=True), *known.links),
        worker.own.title or worker.metadata.name,
        worker.own.summary,
    )


def amqplink(worker: CachedWorker, known: Known, *, inline: bool = False) -> Link:
    """The link from a compute to the queue of its service adapter.

    Inside of the compute (``inline``) the service's attributes are left out: they stand beside it.
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


def kept_attributes(worker: CachedWorker) -> dict[str, Value]:
    """The attributes that clients gave and the platform has no use for."""
    try:
        kept = orjson.loads(worker.metadata.annotations.get(ANNOTATION_OCCI_ATTRIBUTES, "{}"))
    except orjson.JSONDecodeError:
        return {}
    return {name: value for name, value in kept.items() if value is not None} if isinstance(kept, dict) else {}


def oldest(service: CachedService | None, observed: Mapping[str, Observed]) -> float | None:
    """When the oldest of the shown values was observed (seconds since the epoch); None if none is shown."""
    if service is None:
        return None
    declared = service.interface.attributes
    return min((observed[item.name].time for item in declared if item.name in observed), default=None)


def _values(known: Known) -> dict[str, Value]:
    """The service's attributes, and when the oldest value was observed."""
    if known.service is None or not known.observed:
        return {}
    observed = known.observed
    values: dict[str, Value] = {
        PREFIX + item.name: value
        for item in known.service.interface.attributes
        if (found := observed.get(item.name)) is not None and (value := found.value) is not None
    }
    if (time := oldest(known.service, observed)) is not None:
        text = datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")
        values[OBSERVED] = text.replace("+00:00", "Z")
    return values


def _size(worker: CachedWorker, service: CachedService | None) -> dict[str, Value]:
    resources = worker.own.resources or (service.resources if service is not None else None)
    if resources is None:
        return {}
    memory = float(parse_quantity(resources.memory) / 2**30)
    return {CORES: cores_of(resources.cpu), MEMORY: plain(round(memory, 12))}


def _message(worker: CachedWorker, state: ComputeState) -> str:
    return "" if worker.state.good and state is ComputeState.ACTIVE else str(worker.state)
