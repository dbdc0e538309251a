"""The site interface: how the fleet starts, watches and stops machines at one place.

A provider implements :class:`Site` and names a factory in the entry point group ``simyard.sites``; the entry point's
name is the member of the union ``spec.provider`` of a CloudSite, or what its member ``other`` names. Everything is
asynchronous and in bulk; each call answers item by item, as soon as it knows, so that one bad item never holds up the
rest. ``docs/sites/writing-a-site.md`` is for authors, and ``simyard_sites.conformance`` tests what is said here.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class Stage(enum.StrEnum):
    """The stages of a start, named as the OpenNebula study named them; each is entered at a time.

    ``start`` (the worker was asked for), ``pending`` (the site accepted the request), ``prolog`` (placed on a host),
    ``boot`` (its disk is ready), ``running`` (the hypervisor says so), ``registered`` (its adapter's message arrived).
    The site knows ``pending`` to ``running``; the control plane knows the first and the last.
    """

    START = "start"
    PENDING = "pending"
    PROLOG = "prolog"
    BOOT = "boot"
    RUNNING = "running"
    REGISTERED = "registered"


class MachineState(enum.StrEnum):
    """What a machine does now. A machine that is gone is absent from the site's answers."""

    PENDING = "Pending"
    PROLOG = "Prolog"
    BOOT = "Boot"
    RUNNING = "Running"
    STOPPED = "Stopped"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class PowerAction(enum.StrEnum):
    """What ``act`` can ask of a machine."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    SUSPEND = "suspend"


class ErrorScope(enum.StrEnum):
    """How far an error reaches: this item, all machines of its pool (a bad image, say), or the whole site."""

    ITEM = "Item"
    POOL = "Pool"
    SITE = "Site"


class SiteError(Exception):
    """Something that a site refused or failed to do; the subclass says what to do about it.

    A site raises the subclasses only. Users read the message in conditions and events: it says what was wrong, in which
    field of the CloudSite or the SimulationService where it is one, and what to do; and nothing secret.

    Attributes:
        retryable: the same call may succeed later without anybody changing anything.
        scope: how far it reaches.
        retry_after_seconds: when to try again, where the site said so.
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
        """The name under which users see it in conditions and events."""
        return type(self).__name__.removesuffix("Error")


class UnauthenticatedError(SiteError):
    """The credentials are wrong or have expired."""

    scope = ErrorScope.SITE


class PermissionDeniedError(SiteError):
    """The credentials are good and do not suffice."""

    scope = ErrorScope.SITE


class InvalidSpecError(SiteError):
    """The request can never work as it is: a wrong image, template, network, shape."""

    scope = ErrorScope.POOL


class MachineNotFoundError(SiteError):
    """There is no such machine."""


class QuotaExhaustedError(SiteError):
    """A quota is used up: somebody must raise it, or machines must end."""

    retryable = True
    scope = ErrorScope.SITE


class CapacityExhaustedError(SiteError):
    """The site is full."""

    retryable = True
    scope = ErrorScope.SITE


class ConflictError(SiteError):
    """The machine's present state forbids it; try again when the state has changed."""

    retryable = True


class ThrottledError(SiteError):
    """Too many requests; ``retry_after_seconds`` where the site said so."""

    retryable = True
    scope = ErrorScope.SITE


class UnavailableError(SiteError):
    """The site cannot be reached or says that it is down; nothing was done."""

    retryable = True
    scope = ErrorScope.SITE


class UnknownOutcomeError(SiteError):
    """The answer was lost: it may have been done. Look before trying again."""

    retryable = True


class InternalError(SiteError):
    """The site failed in a way that it does not explain."""

    retryable = True


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose machine it is; sites keep it as labels, so that ``list_owned`` finds machines again."""

    namespace: str
    worker: str
    worker_uid: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """One machine to be created.

    ``name`` is unique for all time (worker name and the start of its uid): a machine of that name that exists already
    *is* the one, and ``create`` adopts it. ``bootstrap`` is the document the adapter starts from; it holds a password.
    ``image`` and ``options`` are the service's, for this provider. ``hostname`` is "" where the site is to choose.
    ``user_data`` is the user's own, for cloud-init or what takes its place, beside the adapter's; ``ssh_public_keys``
    may log in. ``cpu_millis`` says in thousandths of a core what ``cores`` rounds up, for sites that can give a part of
    one; 0: ``cores``.
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

    ``interface`` and ``mac`` are the name in the machine and the hardware address of its network interface, "" where
    the site does not say. Some sites only repeat what a guest said, so readers check them.
    """

    ip: str
    interface: str = ""
    mac: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as its site sees it.

    ``entered`` says when it first entered the stages ``pending`` to ``running`` (seconds since the epoch, by the site's
    clock). ``reason`` (one CamelCase word) and ``message`` explain FAILED, and what troubles a machine otherwise.
    ``evacuate`` says why the machine must leave its host soon, "" if it need not: its worker is drained and replaced,
    then it is deleted.
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
    """What became of one item of a bulk call: ``key`` is the request's name (create) or the machine's id.

    A successful create has ``machine``; a failed item has ``error``.
    """

    key: str
    machine: Machine | None = None
    error: SiteError | None = None


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """What ``probe`` found: the version of what answers, and how many machines fit in all where the site knows."""

    version: str
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All machines of this CloudSite there: what is not in it is gone. The first event, and again after a resync."""

    machines: Sequence[Machine]


@dataclass(frozen=True, slots=True)
class Changed:
    """A machine is new or is in another state."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class Gone:
    """A machine does not exist any more."""

    id: str
    name: str


SiteEvent = Snapshot | Changed | Gone


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """What a provider is made from: the CloudSite's name, its member of ``spec.provider``, its secret's data,
    and which installation of Simyard owns the machines. Several installations, and several CloudSites of one, may share
    an account: a machine belongs to the one whose installation and name it was created with. ``kubeconfig`` is that of
    the cluster which the control plane uses; None: found as usual."""

    name: str
    provider: Mapping[str, Any]
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    installation: str = "default"
    kubeconfig: Path | None = None


class Site(Protocol):
    """One place that runs machines. All calls are safe to repeat.

    ``create`` adopts a machine of the same name; ``delete`` of an absent machine succeeds. No call waits for a machine
    to boot or to be gone: ``events`` tells. Each item that was asked for has one :class:`Outcome`, in any order, under
    its own key. A call that fails as a whole raises a :class:`SiteError`, which counts for every item that had no
    outcome yet; one that fails for an item yields it. Deadlines on the network are the provider's own.

    Calls come beside each other, as many and as large as the site was found to bear: a provider has no queue, bounds
    its connections, and does not try again by itself, so that refusals are seen. Any call may be cancelled, and any
    iteration given up, at any moment: nothing is left of it but what the site may have done, and the next call works.

    Where stopping or restarting a machine means its end, the class has an attribute ``stop_ends = True``: then ``act``
    with STOP or RESTART begins to end it, and who wants it again calls ``create`` when it is :class:`Gone`.
    """

    async def probe(self) -> SiteInfo:
        """Say whether the site can be used; raises the :class:`SiteError` that says why not."""
        ...

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """Create machines, or adopt those that exist under the same name, whichever process made them.

        One of that name that belongs to another owner or CloudSite is left alone: the item is refused with
        :class:`InvalidSpecError` and the scope of the item, or, where names are not unique there, gets its own machine.
        An outcome with a machine says that the site accepted it. :class:`UnknownOutcomeError` says that it may have:
        the next ``create`` finds out. While a machine of that name still ends, either it is adopted as it is
        (TERMINATING) or the item is refused with :class:`ConflictError`.
        """
        ...

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Begin to end machines, whatever their state: while they boot, when they failed, and again while they end.

        A machine that is not this site's is as good as absent, here and in ``get`` and ``act``.
        A state in which the site itself cannot yet do it is a :class:`ConflictError`.
        """
        ...

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Look at machines; an absent one yields :class:`MachineNotFoundError`."""
        ...

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """Start, stop, restart or suspend machines. One that is so already is a success.

        An absent machine yields :class:`MachineNotFoundError`, one whose state forbids it :class:`ConflictError`, and
        an action that the site does not have :class:`InvalidSpecError` with the scope of the item.
        """
        ...

    async def list_owned(self) -> Sequence[Machine]:
        """All machines of this CloudSite that have not ended, each with the owner that it was created with."""
        ...

    def events(self) -> AsyncGenerator[SiteEvent, None]:
        """A :class:`Snapshot`, then what changes, without end; raises a :class:`SiteError` when the stream breaks.

        A state that was passed quickly may be skipped, an end never: where changes may have been missed a Snapshot
        follows, or the stream breaks. There may be several streams. What one costs does not grow with machines that
        have ended. Close it (``contextlib.aclosing``) when it is not wanted any more.
        """
        ...

    async def clear(self) -> None:
        """Remove what this site keeps there beside machines, such as what they shared; of others, nothing.

        It is called when the CloudSite is deleted and none of its machines is left. Repeating it does nothing.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and tasks; machines go on. Repeating it does nothing."""
        ...


def stop_ends(site: Site) -> bool:
    """Whether STOP and RESTART end a machine there (see :class:`Site`)."""
    return bool(getattr(site, "stop_ends", False))


class SiteFactory(Protocol):
    """What the entry point names."""

    def __call__(self, config: SiteConfig) -> Site:
        """Make the site; does no I/O."""
        ...
