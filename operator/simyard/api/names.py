"""Names that more than one process must agree on: groups, resources, labels, finalizers, condition types, reasons."""

from __future__ import annotations

import enum

from simyard_sites.kubernetes.resource import Resource

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
FRONTEND = "simyard-frontend"
"""The ServiceAccount and roles of OCCI frontends."""
SITE_PODS = "simyard-site-pod"
SITE_KUBEVIRT = "simyard-site-kubevirt"
"""The ClusterRole that a CloudSite of the provider ``pod`` needs."""
MASTER_KEY_SECRET = "simyard-broker-master-key"  # noqa: S105 - the name of a Secret
"""From it the passwords of the users at the broker are derived; `kubectl simyard rotate` replaces it."""
APISERVER_BROKER_SECRET = "simyard-apiserver-broker"  # noqa: S105 - the name of a Secret
"""Secret in the platform's namespace with the apiserver's own broker credentials; the operator writes it."""
FRONTEND_BROKER_SECRET = "simyard-frontend-broker"  # noqa: S105 - the name of a Secret
"""The same for the OCCI frontends, with ``occi_vhost``, the virtual host of their AMQP clients."""

METRIC_OCCI_REQUEST_SECONDS = "simyard_occi_request_duration_seconds"
"""Frontends show it, by ``method`` and ``code``; the operator scales them by it."""
METRIC_OCCI_REFRESH_SECONDS = "simyard_occi_refresh_seconds"
"""For how long reads that ask for fresh values waited for adapters; part of the former."""
METRIC_LOOP_LATE_SECONDS = "simyard_loop_late_seconds"
"""How late an event loop ran its timers, in sum; likewise."""

CLOUD_SITES = Resource(GROUP, VERSION, "cloudsites", "CloudSite", namespaced=False, name_max=63)
SIMULATION_SERVICES = Resource(GROUP, VERSION, "simulationservices", "SimulationService", name_max=63)
WORKER_POOLS = Resource(GROUP, VERSION, "workerpools", "WorkerPool", name_max=48)
WORKERS = Resource(GROUP, VERSION, "workers", "Worker", name_max=54)
SERVICE_ACTIONS = Resource(GROUP, VERSION, "serviceactions", "ServiceAction")
LICENCES = Resource(GROUP, VERSION, "licences", "Licence", namespaced=False, name_max=63)
USAGES = Resource(GROUP, VERSION, "usages", "Usage")
OCCI_MIXINS = Resource(GROUP, VERSION, "occimixins", "OcciMixin")
OCCI_LINKS = Resource(GROUP, VERSION, "occilinks", "OcciLink")
# The names of sites, services and pools are values of labels (63 characters); a worker's name with 8 digits of its uid
# is the name of a machine, and a host name (63); a pool's name begins those of its workers.

USAGE = "simyard"
"""The name of the one Usage of a namespace."""
LABEL_POOL = "simyard.dev/pool"
LABEL_SERVICE = "simyard.dev/service"
LABEL_SERVICE_NAMESPACE = "simyard.dev/service-namespace"
"""On what the platform's namespace has for a service; there, ``simyard.dev/service`` is the service's name."""
LABEL_SITE = "simyard.dev/site"
LABEL_REVISION = "simyard.dev/revision"
"""On Workers of pools: changes with all that a machine is made from (``plan/revision.py``)."""
ANNOTATION_REQUESTED = "simyard.dev/requested-time"
"""On Workers: when it was asked for (``creationTimestamp`` has whole seconds only)."""
ANNOTATION_VERSION = "simyard.dev/service-version"
"""On Workers: the version of the service that their machine was made from."""
ANNOTATION_LICENCE = "simyard.dev/licence"
"""On Workers of pools: the licence of which it holds a seat, also when its service is gone."""
ANNOTATION_MANIFEST = "simyard.dev/manifest"
"""On what a frontend consists of: a digest of the manifest that was applied last."""
ANNOTATION_REQUESTED_BY = "simyard.dev/requested-by"
"""On ServiceActions that the aggregated apiserver created: the user who called."""
ANNOTATION_LEAVES = "simyard.dev/leaves"
"""On Workers of pools: somebody has asked that this one goes; when its pool has too many workers it goes first."""
ANNOTATION_OCCI_ID = "simyard.dev/occi-id"
"""On Workers and OcciLinks: the OCCI id that a client chose; their uid by default."""
ANNOTATION_OCCI_KEY = "simyard.dev/occi-key"
"""On Workers and OcciLinks: a digest of the OCCI request that made them, which may be delivered twice."""
ANNOTATION_OCCI_DONE = "simyard.dev/occi-done"
"""On Workers and WorkerPools: short digests of what OCCI requests changed in them last, and of the Workers that a pool
was scaled in for; each may be delivered twice."""
ANNOTATION_OCCI_ATTRIBUTES = "simyard.dev/occi-attributes"
"""On Workers: a JSON object of the OCCI attributes that clients gave and the platform has no use for."""
ANNOTATION_OCCI_MIXINS = "simyard.dev/occi-mixins"
"""On Workers: the ids of the provider's mixins that clients asked for and its fields do not say."""
ANNOTATION_OCCI_PULLED = "simyard.dev/occi-pulled"
"""On OcciLinks: a JSON object of what their service adapter told when a frontend asked it last."""
ANNOTATION_ABANDON = "simyard.dev/abandon"
"""``"true"`` on a CloudSite: nobody will ever clean up there; it goes, whatever is left behind."""
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
    LICENCE_PERMITTED = "LicencePermitted"
    FRONTENDS_AVAILABLE = "FrontendsAvailable"
    SCALING_ACTIVE = "ScalingActive"
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
    INTERNAL = "Internal"
    SITE_UNREACHABLE = "SiteUnreachable"
    CAPACITY_EXHAUSTED = "CapacityExhausted"
    QUOTA_EXHAUSTED = "QuotaExhausted"
    THROTTLED = "Throttled"
    CAPACITY_LEFT = "CapacityLeft"
    MAX_WORKERS_REACHED = "MaxWorkersReached"
    BREAKER_OPEN = "BreakerOpen"
    WORKERS_REMAIN = "WorkersRemain"
    # Licence
    SEATS_LEFT = "SeatsLeft"
    SEATS_TAKEN = "SeatsTaken"
    # SimulationService
    PUBLISHED = "Published"
    INTERFACE_INVALID = "InterfaceInvalid"
    LICENCE_FOUND = "LicenceFound"
    LICENCE_NOT_FOUND = "LicenceNotFound"
    LICENCE_FORBIDDEN = "LicenceForbidden"
    FRONTENDS_READY = "FrontendsReady"
    FRONTENDS_STARTING = "FrontendsStarting"
    FRONTENDS_REFUSED = "FrontendsRefused"
    FRONTENDS_NOT_OFFERED = "FrontendsNotOffered"
    LOAD_FOLLOWED = "LoadFollowed"
    LOAD_UNKNOWN = "LoadUnknown"
    SCALING_LIMITED = "ScalingLimited"
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
    SITE_NOT_PERMITTED = "SiteNotPermitted"
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
    TOO_MANY_ACTIONS = "TooManyActions"
    WORKER_LOST = "WorkerLost"
    # Events
    SCALED = "Scaled"
    FRONTENDS_SCALED = "FrontendsScaled"
    START_BEGUN = "StartBegun"
    START_FINISHED = "StartFinished"
    WORKER_REPLACED = "WorkerReplaced"
    WORKERS_MOVED = "WorkersMoved"
    WORKERS_RETURNED = "WorkersReturned"
    WORKER_EVACUATED = "WorkerEvacuated"
    ORPHAN_REMOVED = "OrphanRemoved"
    SITE_READY = "SiteReady"
    SITE_NOT_READY = "SiteNotReady"
    SITE_ABANDONED = "SiteAbandoned"
    WORKERS_CUT_OFF = "WorkersCutOff"
