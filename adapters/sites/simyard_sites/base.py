# SPDX-License-Identifier: Apache-2.0
"""Defines the site interface, through which the fleet starts, watches and stops the machines of one site.

A provider implements :class:`Site` and names a factory in the entry point group ``simyard.sites``. The name of the
entry point is the member of the union ``spec.provider`` of a CloudSite, or the name in its member ``other``. All calls
are asynchronous and work on many items. Each item has its own result, which a call yields as soon as it is known, so
that one bad item never delays the others. ``docs/sites/writing-a-site.md`` explains the interface to authors, and
``simyard_sites.conformance`` tests it.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class Stage(enum.StrEnum):
    """A stage of a worker's start; a worker enters each stage at a point in time.

    The names come from the OpenNebula study: ``start`` (the worker was requested), ``pending`` (the site accepted the
    request), ``prolog`` (the machine has a host), ``boot`` (its disk is ready), ``running`` (the hypervisor reports
    that it runs), ``registered`` (the adapter's message arrived). The site knows ``pending`` to ``running``; the
    control plane knows the first and the last.
    """

    START = "start"
    PENDING = "pending"
    PROLOG = "prolog"
    BOOT = "boot"
    RUNNING = "running"
    REGISTERED = "registered"


class MachineState(enum.StrEnum):
    """The present state of a machine. There is no state for a machine that is gone: the site's answers omit it."""

    PENDING = "Pending"
    PROLOG = "Prolog"
    BOOT = "Boot"
    RUNNING = "Running"
    STOPPED = "Stopped"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class PowerAction(enum.StrEnum):
    """A power action that :meth:`Site.act` can apply to a machine."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    SUSPEND = "suspend"


class ErrorScope(enum.StrEnum):
    """The scope of an error: this item, all machines of its pool (for example a bad image), or the whole site."""

    ITEM = "Item"
    POOL = "Pool"
    SITE = "Site"


class SiteError(Exception):
    """An error of a site. Its subclass determines what the platform does next.

    A site raises only the subclasses. Users read the message in conditions and events. The message says what is wrong,
    names the field of the CloudSite or the SimulationService if there is one, and names a remedy. It contains no
    secret.

    Attributes:
        retryable: The same call may succeed later without any change by a person.
        scope: The machines that the error affects.
        retry_after_seconds: The delay before the next try, if the site gave one.
    """

    retryable = False
    scope = ErrorScope.ITEM

    def __init__(
        self, message: str, *, scope: ErrorScope | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        if scope is not None:
            self.scope = scope
        self.retry_after_seconds = retry_after_seconds

    @property
    def reason(self) -> str:
        """The name of the error in conditions and events."""
        return type(self).__name__.removesuffix("Error")


class UnauthenticatedError(SiteError):
    """Wrong or expired credentials."""

    scope = ErrorScope.SITE


class PermissionDeniedError(SiteError):
    """Valid credentials that lack a necessary right."""

    scope = ErrorScope.SITE


class InvalidSpecError(SiteError):
    """A request that can never succeed unchanged: a wrong image, template, network or shape."""

    scope = ErrorScope.POOL


class MachineNotFoundError(SiteError):
    """A machine that does not exist."""


class QuotaExhaustedError(SiteError):
    """A quota that is used up: an administrator must raise it, or machines must end."""

    retryable = True
    scope = ErrorScope.SITE


class CapacityExhaustedError(SiteError):
    """A site without free capacity."""

    retryable = True
    scope = ErrorScope.SITE


class ConflictError(SiteError):
    """A request that the present state of the machine does not allow. Retry when the state has changed."""

    retryable = True


class ThrottledError(SiteError):
    """A request above the site's rate limit; ``retry_after_seconds`` is set if the site gave a delay."""

    retryable = True
    scope = ErrorScope.SITE


class UnavailableError(SiteError):
    """A site that does not answer or reports that it is down. The request had no effect."""

    retryable = True
    scope = ErrorScope.SITE


class UnknownOutcomeError(SiteError):
    """A request whose answer was lost and which may have been carried out. Look at the machine before a retry."""

    retryable = True


class InternalError(SiteError):
    """A failure of the site that it does not explain."""

    retryable = True


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a machine; sites store it as labels, so that ``list_owned`` finds the machine again."""

    namespace: str
    worker: str
    worker_uid: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """A request for one machine.

    Attributes:
        name: The name, unique for all time: the worker's name and the start of its uid. If a machine with this name
            exists, ``create`` adopts it.
        bootstrap: The adapter's bootstrap document; it contains a password.
        image: The service's image for this provider.
        options: The service's options for this provider.
        hostname: The host name; "" lets the site choose.
        user_data: The user's own data for cloud-init or its equivalent, in addition to the adapter's.
        ssh_public_keys: The keys of the users who may log in.
        cpu_millis: The requested cores in thousandths, for sites that can assign a part of a core. ``cores`` is this
            value, rounded up. 0 means ``cores``.
    """

    name: str
    owner: Owner
    bootstrap: bytes = field(repr=False)
    cores: int = 1
    memory_mib: int = 512
    image: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    hostname: str = ""
    user_data: str = field(default="", repr=False)
    ssh_public_keys: tuple[str, ...] = ()
    cpu_millis: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address of a machine.

    ``interface`` is the name of the network interface in the machine, and ``mac`` its hardware address; "" if the site
    does not report them. Some sites only repeat what a guest reported, so readers must check the values.
    """

    ip: str
    interface: str = ""
    mac: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as its site reports it.

    Attributes:
        entered: The times at which the machine first entered the stages ``pending`` to ``running``, in seconds since
            the epoch, by the site's clock.
        reason: One CamelCase word that explains FAILED or another problem of the machine.
        message: The text that belongs to ``reason``.
        evacuate: The reason why the machine must leave its host soon, or "". Its worker is drained and replaced, then
            the machine is deleted.
    """

    id: str
    name: str
    owner: Owner
    state: MachineState
    entered: Mapping[Stage, float] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    addresses: tuple[Address, ...] = ()
    evacuate: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one item of a bulk call.

    ``key`` is the name in the request (``create``) or the machine's id. A successful ``create`` has ``machine``; a
    failed item has ``error``.
    """

    key: str
    machine: Machine | None = None
    error: SiteError | None = None


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """The result of ``probe``: the version of the software, and how many machines the site can run in all, if known."""

    version: str
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The event with all machines of this CloudSite: any other machine is gone. Each stream begins with a snapshot."""

    machines: Sequence[Machine]


@dataclass(frozen=True, slots=True)
class Changed:
    """The event that a machine is new or has another state."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class Gone:
    """The event that a machine does not exist any more."""

    id: str
    name: str


SiteEvent = Snapshot | Changed | Gone


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """The configuration from which a factory creates a site.

    Several installations of Simyard, and several CloudSites of one installation, may share an account. A machine
    belongs to the installation and the CloudSite with which it was created.

    Attributes:
        name: The name of the CloudSite.
        provider: The provider's member of ``spec.provider``.
        secret: The data of the Secret with the credentials.
        installation: The installation of Simyard that owns the machines.
        kubeconfig: The kubeconfig file of the control plane's own cluster; None for ``$KUBECONFIG`` or the cluster in
            which the process runs.
    """

    name: str
    provider: Mapping[str, Any]
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    installation: str = "default"
    kubeconfig: Path | None = None


class Site(Protocol):
    """A site that runs machines. The platform can safely repeat each call.

    ``create`` adopts a machine with the same name; ``delete`` of an absent machine succeeds. No call waits until a
    machine has booted or is gone: ``events`` reports this. A call yields one :class:`Outcome` for each item, with its
    key, in any order. If a call fails as a whole, it raises a :class:`SiteError`, which counts for every item without
    an outcome. If it fails for one item, the outcome of this item has the error. The provider sets the deadlines of its
    network requests.

    The platform chooses the number and the batch size of parallel calls. A provider has no queue, limits its
    connections, and does not retry, so that the platform sees refusals. The platform may cancel any call, and abandon
    any iteration, at any time. After that, only the effects at the site remain, and the next call works.

    If the site ends a machine to stop or restart it, the class has the attribute ``stop_ends = True``. Then ``act``
    with STOP or RESTART starts to end the machine, and the platform calls ``create`` again after :class:`Gone`.
    """

    async def probe(self) -> SiteInfo:
        """Return the site's version and capacity; raise a :class:`SiteError` if the site cannot be used."""
        ...

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """Create machines, or adopt existing machines with the same names, no matter which process created them.

        The call does not touch a machine with this name that belongs to another owner or CloudSite. The item is then
        refused with :class:`InvalidSpecError` in the scope of the item; if names are not unique at the site, the item
        gets a new machine. An outcome with a machine means that the site accepted the request.
        :class:`UnknownOutcomeError` means that the site may have accepted it; the next ``create`` shows this. While a
        machine with this name is still ending, the call either adopts it in its state (TERMINATING), or refuses the
        item with :class:`ConflictError`.
        """
        ...

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Start to delete machines in any state: booting, failed or already ending.

        ``delete``, ``get`` and ``act`` treat a machine of another owner as absent. If the site cannot delete a machine
        in its present state, the outcome has a :class:`ConflictError`.
        """
        ...

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Yield the present state of machines; an absent machine yields :class:`MachineNotFoundError`."""
        ...

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """Start, stop, restart or suspend machines. If a machine is in the requested state already, the item succeeds.

        An absent machine yields :class:`MachineNotFoundError`. A machine in an unsuitable state yields
        :class:`ConflictError`. An action that the site does not support yields :class:`InvalidSpecError` in the scope
        of the item.
        """
        ...

    async def list_owned(self) -> Sequence[Machine]:
        """Return all machines of this CloudSite that still exist, each with the owner from its creation."""
        ...

    def events(self) -> AsyncGenerator[SiteEvent, None]:
        """Yield a :class:`Snapshot`, then changes without end; raise a :class:`SiteError` when the stream breaks.

        The stream may omit a state of short duration, but never the end of a machine. If it may have missed changes, it
        yields a new Snapshot or raises an error. Several streams may be open. The cost of a stream does not grow with
        the number of ended machines. Close an unused stream with ``contextlib.aclosing``.
        """
        ...

    async def clear(self) -> None:
        """Delete all objects of this site other than machines, such as shared Secrets, but nothing of other owners.

        The platform calls this when the CloudSite is deleted and its last machine is gone. A second call does nothing.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and tasks; machines continue to run. A second call does nothing."""
        ...


def stop_ends(site: Site) -> bool:
    """Return True if STOP and RESTART end a machine of this site (see :class:`Site`)."""
    return bool(getattr(site, "stop_ends", False))


class SiteFactory(Protocol):
    """The factory that an entry point names."""

    def __call__(self, config: SiteConfig) -> Site:
        """Create the site, without I/O."""
        ...
