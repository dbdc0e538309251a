# SPDX-License-Identifier: Apache-2.0
"""Names that more than one process must agree on: groups, resources, labels, finalizers, condition types, reasons."""

from __future__ import annotations

import enum

from simyard_sites.kubernetes.resource import Resource

GROUP = "simyard.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
SUBRESOURCES_GROUP = "subresources.simyard.dev"
SUBRESOURCES_API_VERSION = f"{SUBRESOURCES_GROUP}/{VERSION}"
ACTION_RESULT = "ActionResult"
ATTRIBUTE_VALUES = "AttributeValues"
STUDY_RESULTS = "StudyResults"
CATEGORY = "simyard"

SYSTEM_NAMESPACE = "simyard-system"
"""Default namespace of the platform."""
OPERATOR = "simyard-operator"
"""Name of the operator's ServiceAccount and roles."""
APISERVER = "simyard-apiserver"
"""Name of the aggregated apiserver's ServiceAccount, roles and Service."""
FRONTEND = "simyard-frontend"
"""Name of the ServiceAccount and roles of OCCI frontends."""
OPTIMISER = "simyard-optimiser"
"""Name of the optimiser's ServiceAccount and roles."""
SITE_PODS = "simyard-site-pod"
SITE_KUBEVIRT = "simyard-site-kubevirt"
"""Names of the ClusterRoles that CloudSites of the providers ``pod`` and ``kubevirt`` need."""
MASTER_KEY_SECRET = "simyard-broker-master-key"  # noqa: S105 - the name of a Secret
"""Secret with the key from which the operator derives the passwords of broker users.

``kubectl simyard rotate`` replaces the key."""
APISERVER_BROKER_SECRET = "simyard-apiserver-broker"  # noqa: S105 - the name of a Secret
"""Secret in the platform's namespace with the apiserver's broker credentials; the operator writes it."""
FRONTEND_BROKER_SECRET = "simyard-frontend-broker"  # noqa: S105 - the name of a Secret
"""Secret with the broker credentials of the OCCI frontends, and with ``occi_vhost``, the AMQP clients' virtual host."""

METRIC_OCCI_REQUEST_SECONDS = "simyard_occi_request_duration_seconds"
"""Metric of frontends: duration of requests, by ``method`` and ``code``; the operator scales frontends by it."""
METRIC_OCCI_REFRESH_SECONDS = "simyard_occi_refresh_seconds"
"""Metric: time for which requests waited for adapters to report fresh values; a part of the requests' duration."""
METRIC_LOOP_LATE_SECONDS = "simyard_loop_late_seconds"
"""Metric: sum of the delays with which an event loop ran its timers; the operator scales frontends by it."""

CLOUD_SITES = Resource(GROUP, VERSION, "cloudsites", "CloudSite", namespaced=False, name_max=63)
SIMULATION_SERVICES = Resource(GROUP, VERSION, "simulationservices", "SimulationService", name_max=63)
WORKER_POOLS = Resource(GROUP, VERSION, "workerpools", "WorkerPool", name_max=48)
WORKERS = Resource(GROUP, VERSION, "workers", "Worker", name_max=54)
SERVICE_ACTIONS = Resource(GROUP, VERSION, "serviceactions", "ServiceAction")
STUDIES = Resource(GROUP, VERSION, "studies", "Study")
STUDY_RECORDS = Resource(GROUP, VERSION, "studyrecords", "StudyRecord")
LICENCES = Resource(GROUP, VERSION, "licences", "Licence", namespaced=False, name_max=63)
USAGES = Resource(GROUP, VERSION, "usages", "Usage")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
FILES = Resource(SUBRESOURCES_GROUP, VERSION, "files", "File")
OCCI_MIXINS = Resource(GROUP, VERSION, "occimixins", "OcciMixin")
OCCI_LINKS = Resource(GROUP, VERSION, "occilinks", "OcciLink")
# Names of sites, services and pools are values of labels (at most 63 characters). The name of a machine consists of the
# worker's name and 8 digits of its uid, and is a host name (at most 63 characters). The name of a worker begins with
# the name of its pool.

USAGE = "simyard"
"""Name of the only Usage of a namespace."""
LABEL_POOL = "simyard.dev/pool"
LABEL_SERVICE = "simyard.dev/service"
LABEL_SERVICE_NAMESPACE = "simyard.dev/service-namespace"
"""Label with the namespace of a service. The service's objects in the platform's namespace have this label.

Their label ``simyard.dev/service`` is the name of the service."""
LABEL_SITE = "simyard.dev/site"
LABEL_STUDY = "simyard.dev/study"
"""Label of StudyRecords: uid of the Study."""
LABEL_RECORD = "simyard.dev/record"
"""Label of StudyRecords: ``parts``, ``assigned`` or ``begun``."""
LABEL_REVISION = "simyard.dev/revision"
"""Label of a pool's Workers: hash of everything that their machines are made from (``plan/revision.py``)."""
ANNOTATION_REQUESTED = "simyard.dev/requested-time"
"""Annotation of Workers: time of the request (``creationTimestamp`` has whole seconds only)."""
ANNOTATION_VERSION = "simyard.dev/service-version"
"""Annotation of Workers: version of the service from which the machine was made."""
ANNOTATION_LICENCE = "simyard.dev/licence"
"""Annotation of a pool's Workers: licence whose seat the Worker occupies, even after its service is deleted."""
ANNOTATION_MANIFEST = "simyard.dev/manifest"
"""Annotation of a frontend's objects: digest of the manifest that the operator applied last."""
ANNOTATION_FILES_QUOTA = "simyard.dev/files-quota"
"""Annotation of namespaces: quota of files, a quantity of bytes; it replaces the quota of the installation."""
ANNOTATION_REQUESTED_BY = "simyard.dev/requested-by"
"""Annotation of ServiceActions that the aggregated apiserver created: the user who called the action."""
ANNOTATION_INLINE_RESULT = "simyard.dev/inline-result"
"""Annotation of ServiceActions: with ``"true"``, a large result stays in the object and not in the file store."""
ANNOTATION_LEAVES = "simyard.dev/leaves"
"""Annotation of a pool's Workers: a user asked for the removal of this Worker, so a scale-in removes it first."""
ANNOTATION_OCCI_ID = "simyard.dev/occi-id"
"""Annotation of Workers and OcciLinks: OCCI id that a client chose; without it, the uid is the OCCI id."""
ANNOTATION_OCCI_KEY = "simyard.dev/occi-key"
"""Annotation of Workers and OcciLinks: digest of the OCCI request that created them, to detect a second delivery."""
ANNOTATION_OCCI_DONE = "simyard.dev/occi-done"
"""Annotation of Workers and WorkerPools: short digests of the last changes by OCCI requests.

The frontends use it to detect a second delivery of a request. On a WorkerPool, it also has digests of the Workers for
whose deletion a frontend scaled the pool in."""
ANNOTATION_OCCI_ATTRIBUTES = "simyard.dev/occi-attributes"
"""Annotation of Workers: JSON object of OCCI attributes that clients set, and that the platform only stores."""
ANNOTATION_OCCI_MIXINS = "simyard.dev/occi-mixins"
"""Annotation of Workers: ids of the provider's mixins that clients asked for and that no field of the Worker has."""
ANNOTATION_OCCI_PULLED = "simyard.dev/occi-pulled"
"""Annotation of OcciLinks: JSON object of the service adapter's newest answer to a frontend."""
ANNOTATION_ABANDON = "simyard.dev/abandon"
"""Annotation of CloudSites: with ``"true"``, a deleted CloudSite does not wait until its machines are gone."""
FINALIZER = "simyard.dev/machines"
"""Finalizer of WorkerPools and CloudSites: the object stays until all its machines are gone."""


class ConditionType(enum.StrEnum):
    """Type of a condition. True is the good status, except for Failed, which has the same meaning as in a Job."""

    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    READY = "Ready"
    REACHABLE = "Reachable"
    CREDENTIALS_VALID = "CredentialsValid"
    CAPACITY_AVAILABLE = "CapacityAvailable"
    PLATFORM_HEALTHY = "PlatformHealthy"
    LICENCE_AVAILABLE = "LicenceAvailable"
    LICENCE_PERMITTED = "LicencePermitted"
    FRONTENDS_AVAILABLE = "FrontendsAvailable"
    SCALING_ACTIVE = "ScalingActive"
    COMPLETE = "Complete"
    FAILED = "Failed"


class Reason(enum.StrEnum):
    """Reason of a condition, an Event or a failure: a part of the API, which docs/conditions.md explains."""

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
    PLATFORM_WORKS = "PlatformWorks"
    WORK_OVERDUE = "WorkOverdue"
    CLOCK_SKEW = "ClockSkew"
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
    # Study
    DESIGN_INVALID = "DesignInvalid"
    FILE_STORE_MISSING = "FileStoreMissing"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    TOO_MANY_FAILED_TASKS = "TooManyFailedTasks"
    STOP_RULE_MET = "StopRuleMet"
    MAX_COST_REACHED = "MaxCostReached"
    WAITING_FOR_OPTIMISER = "WaitingForOptimiser"
    WAITING_FOR_FILE_STORE = "WaitingForFileStore"
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
