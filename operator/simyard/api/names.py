"""Names that more than one process must agree on: groups, resources, labels, finalizers, condition types, reasons."""

from __future__ import annotations

import enum
from dataclasses import dataclass

GROUP = "simyard.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
SUBRESOURCES_GROUP = "subresources.simyard.dev"
SUBRESOURCES_API_VERSION = f"{SUBRESOURCES_GROUP}/{VERSION}"
CATEGORY = "simyard"

SYSTEM_NAMESPACE = "simyard-system"
"""Where the platform itself lives unless told otherwise."""
OPERATOR = "simyard-operator"
"""The operator's ServiceAccount and roles."""
APISERVER = "simyard-apiserver"
"""The aggregated apiserver's ServiceAccount, roles and Service."""
APISERVER_BROKER_SECRET = "simyard-apiserver-broker"  # noqa: S105 - the name of a Secret
"""Secret in the platform's namespace with the apiserver's own broker credentials; the operator writes it."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the Kubernetes API: what its path is made of.

    ``name_max``: names are DNS labels of at most so many characters (None: as long as Kubernetes permits).
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    name_max: int | None = None

    @property
    def api_version(self) -> str:
        """As in ``apiVersion`` of an object."""
        return f"{self.group}/{self.version}" if self.group else self.version


CLOUD_SITES = Resource(GROUP, VERSION, "cloudsites", "CloudSite", namespaced=False, name_max=63)
SIMULATION_SERVICES = Resource(GROUP, VERSION, "simulationservices", "SimulationService", name_max=63)
WORKER_POOLS = Resource(GROUP, VERSION, "workerpools", "WorkerPool", name_max=48)
WORKERS = Resource(GROUP, VERSION, "workers", "Worker", name_max=54)
SERVICE_ACTIONS = Resource(GROUP, VERSION, "serviceactions", "ServiceAction")
USAGES = Resource(GROUP, VERSION, "usages", "Usage")
# The names of sites, services and pools are values of labels (63 characters); a worker's name with 8 digits of its uid
# is the name of a machine, and a host name (63); a pool's name begins those of its workers.

USAGE = "simyard"
"""The name of the one Usage of a namespace."""
LABEL_POOL = "simyard.dev/pool"
LABEL_SERVICE = "simyard.dev/service"
LABEL_SITE = "simyard.dev/site"
LABEL_REVISION = "simyard.dev/revision"
"""On Workers of pools: changes with all that a machine is made from (``plan/revision.py``)."""
ANNOTATION_REQUESTED = "simyard.dev/requested-time"
"""On Workers: when it was asked for (``creationTimestamp`` has whole seconds only)."""
ANNOTATION_LICENCE = "simyard.dev/licence"
"""On Workers of pools: the licence of which it holds a seat, also when its service is gone."""
ANNOTATION_REQUESTED_BY = "simyard.dev/requested-by"
"""On ServiceActions that the aggregated apiserver created: the user who called."""
FINALIZER = "simyard.dev/machines"
"""On WorkerPools and CloudSites: they stay until no machine of theirs is left."""


class ConditionType(enum.StrEnum):
    """The types of conditions, each with the polarity "True is good" (Failed and Complete are those of a Job)."""

    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    READY = "Ready"
    REACHABLE = "Reachable"
    CREDENTIALS_VALID = "CredentialsValid"
    CAPACITY_AVAILABLE = "CapacityAvailable"
    LICENCE_AVAILABLE = "LicenceAvailable"
    LICENCE_CONSISTENT = "LicenceConsistent"
    COMPLETE = "Complete"
    FAILED = "Failed"


class Reason(enum.StrEnum):
    """The reasons of conditions, events and failures: part of the API, explained in ``docs/conditions.md``."""

    # CloudSite
    PROBE_SUCCEEDED = "ProbeSucceeded"
    PROVIDER_NOT_INSTALLED = "ProviderNotInstalled"
    CREDENTIALS_NOT_FOUND = "CredentialsNotFound"
    UNAUTHENTICATED = "Unauthenticated"
    PERMISSION_DENIED = "PermissionDenied"
    UNAVAILABLE = "Unavailable"
    CAPACITY_EXHAUSTED = "CapacityExhausted"
    QUOTA_EXHAUSTED = "QuotaExhausted"
    THROTTLED = "Throttled"
    CAPACITY_LEFT = "CapacityLeft"
    MAX_WORKERS_REACHED = "MaxWorkersReached"
    BREAKER_OPEN = "BreakerOpen"
    WORKERS_REMAIN = "WorkersRemain"
    # SimulationService
    PUBLISHED = "Published"
    INTERFACE_INVALID = "InterfaceInvalid"
    SEATS_AGREE = "SeatsAgree"
    SEATS_DIFFER = "SeatsDiffer"
    # WorkerPool
    WORKERS_READY = "WorkersReady"
    WORKERS_STARTING = "WorkersStarting"
    SCALED_TO_ZERO = "ScaledToZero"
    SUSPENDED = "Suspended"
    IDLE = "Idle"
    WORKERS_UPDATED = "WorkersUpdated"
    ROLLING_OUT = "RollingOut"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    SERVICE_NOT_FOUND = "ServiceNotFound"
    SITE_NOT_FOUND = "SiteNotFound"
    NO_SITE_AVAILABLE = "NoSiteAvailable"
    ATTRIBUTES_INVALID = "AttributesInvalid"
    BROKER_UNREACHABLE = "BrokerUnreachable"
    WORKERS_REFUSED = "WorkersRefused"
    SEATS_GRANTED = "SeatsGranted"
    WAITING_FOR_SEATS = "WaitingForSeats"
    PASSED_OVER = "PassedOver"
    TERMINATING = "Terminating"
    # Worker
    STARTING = "Starting"
    REGISTERED = "Registered"
    ADAPTER_DISCONNECTED = "AdapterDisconnected"
    MACHINE_FAILED = "MachineFailed"
    MACHINE_LOST = "MachineLost"
    READINESS_DEADLINE_EXCEEDED = "ReadinessDeadlineExceeded"
    DRAINING = "Draining"
    DRAINED = "Drained"
    STOPPED = "Stopped"
    # ServiceAction
    WAITING_FOR_WORKER = "WaitingForWorker"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    TARGET_NOT_FOUND = "TargetNotFound"
    WORKER_LOST = "WorkerLost"
    # Events
    SCALED = "Scaled"
    START_BEGUN = "StartBegun"
    START_FINISHED = "StartFinished"
    WORKER_REPLACED = "WorkerReplaced"
    WORKERS_MOVED = "WorkersMoved"
    ORPHAN_REMOVED = "OrphanRemoved"
