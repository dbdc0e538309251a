# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions of Simyard's kinds."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from simyard.api import names
from simyard.api.base import Json
from simyard.api.cloud_site import CloudSite
from simyard.api.licence import Licence
from simyard.api.occi import OcciLink, OcciMixin
from simyard.api.service_action import ServiceAction
from simyard.api.simulation_service import SimulationService
from simyard.api.study import Study
from simyard.api.study_record import StudyRecord
from simyard.api.usage import Usage
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.manifests.schema import build_schema
from simyard_sites.kubernetes.resource import Resource

_DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


@dataclass(frozen=True, slots=True)
class Column:
    """Column of ``kubectl get``; kubectl shows a ``wide`` column only with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False

    def to_json(self) -> Json:
        """Return the column as an item of ``additionalPrinterColumns``."""
        column: Json = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            column["description"] = self.description
        if self.wide:
            column["priority"] = 1
        return column


@dataclass(frozen=True, slots=True)
class Definition:
    """Properties of a CustomResourceDefinition, without its schema. Field selectors can use ``fields``."""

    resource: Resource
    model: type[BaseModel]
    short_name: str
    columns: tuple[Column, ...]
    fields: tuple[str, ...] = ()
    scalable: bool = False


def _make_condition_columns(kind: names.ConditionType) -> tuple[Column, Column]:
    entry = f'.status.conditions[?(@.type=="{kind}")]'
    return Column(kind.value, f"{entry}.status"), Column("Reason", f"{entry}.reason")


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

DEFINITIONS = (
    Definition(
        names.CLOUD_SITES,
        CloudSite,
        "csite",
        (
            *_make_condition_columns(names.ConditionType.READY),
            Column("Trust", ".spec.trust"),
            Column("Workers", ".status.workers.total", "integer", "Machines of the platform at the site."),
            Column("Version", ".status.version", description="Product and version of the site."),
            Column("Max", ".spec.limits.maxWorkers", "integer", "Maximum number of Workers.", wide=True),
            Column("Breaker", ".status.breaker.state", description="State of the breaker.", wide=True),
            Column(
                "Boot-Ms", ".status.stages.totalMilliseconds", "integer", "Median boot time of a machine.", wide=True
            ),
            Column("Cordoned", ".spec.cordoned", "boolean", "Keeps new workers away.", wide=True),
            _AGE,
        ),
    ),
    Definition(
        names.SIMULATION_SERVICES,
        SimulationService,
        "simsvc",
        (
            *_make_condition_columns(names.ConditionType.AVAILABLE),
            Column("Version", ".spec.version", description="Version of the simulation program."),
            Column("Pools", ".status.pools", "integer"),
            Column("Workers", ".status.workers", "integer"),
            Column("Ready", ".status.readyWorkers", "integer", "Workers that accept actions."),
            Column("Frontends", ".status.frontends.ready", "integer", "OCCI frontends that answer.", wide=True),
            Column("Seats", ".status.licence.seats", "integer", "Seats of the licence.", wide=True),
            Column("Taken", ".status.licence.taken", "integer", "Seats that are occupied.", wide=True),
            Column("Name", ".spec.displayName", wide=True),
            Column("Vendor", ".spec.vendor", wide=True),
            _AGE,
        ),
    ),
    Definition(
        names.WORKER_POOLS,
        WorkerPool,
        "wpool",
        (
            Column("Service", ".spec.serviceRef.name"),
            Column("Desired", ".spec.replicas", "integer", "Desired number of workers."),
            Column("Ready", ".status.readyReplicas", "integer", "Workers that accept actions."),
            Column("Updated", ".status.updatedReplicas", "integer", "Workers with the present revision."),
            *_make_condition_columns(names.ConditionType.AVAILABLE),
            Column("Starting", ".status.startingReplicas", "integer", "Workers that are starting.", wide=True),
            Column(
                "Failed",
                ".status.failedReplicas",
                "integer",
                "Workers that failed and are not replaced yet.",
                wide=True,
            ),
            Column("Boot-ms", ".status.start.bootMilliseconds", "integer", "T_boot of the newest start.", wide=True),
            Column(
                "Registered-ms",
                ".status.start.registeredMilliseconds",
                "integer",
                "T_r of the newest start.",
                wide=True,
            ),
            Column(
                "Published-ms", ".status.start.publishedMilliseconds", "integer", "T_m of the newest start.", wide=True
            ),
            _AGE,
        ),
        scalable=True,
    ),
    Definition(
        names.WORKERS,
        Worker,
        "wkr",
        (
            Column("Service", ".spec.serviceRef.name"),
            Column("Site", ".spec.site"),
            Column("Machine", ".status.machineState", description="State of the machine at the site."),
            *_make_condition_columns(names.ConditionType.READY),
            Column("Pool", rf".metadata.labels.{names.LABEL_POOL.replace('.', chr(92) + '.')}", wide=True),
            Column("Machine-id", ".status.machineId", wide=True),
            Column("Address", ".status.addresses[0].address", wide=True),
            _AGE,
        ),
        fields=(".spec.serviceRef.name", ".spec.site"),
    ),
    Definition(
        names.SERVICE_ACTIONS,
        ServiceAction,
        "sact",
        (
            Column("Action", ".spec.action"),
            Column("Kind", ".spec.target.kind", description="Kind of the target."),
            Column("Target", ".spec.target.name"),
            Column("Percent", ".status.percent", "integer", "Share of the work that is done."),
            Column("Complete", f'.status.conditions[?(@.type=="{names.ConditionType.COMPLETE}")].status'),
            Column("Failed", f'.status.conditions[?(@.type=="{names.ConditionType.FAILED}")].status'),
            Column("Worker", ".status.worker", description="Worker that runs or ran the action.", wide=True),
            Column("Attempts", ".status.attempts", "integer", wide=True),
            Column("Failure", ".status.failure.reason", wide=True),
            _AGE,
        ),
        fields=(".spec.target.kind", ".spec.target.name", ".spec.action"),
    ),
    Definition(
        names.STUDIES,
        Study,
        "simstudy",
        (
            Column("Action", ".spec.action"),
            Column("Target", ".spec.target.name"),
            Column("Tasks", ".status.tasks", "integer", "Number of tasks."),
            Column("Done", ".status.succeeded", "integer", "Tasks that succeeded."),
            Column("Failed", ".status.failed", "integer", "Tasks that failed."),
            Column("Running", ".status.running", "integer", "Workers that run tasks."),
            Column("Rate", ".status.tasksPerSecond", description="Tasks per second."),
            Column("Best", ".status.optimisation.best.value", description="Best value of an optimisation."),
            Column("Complete", f'.status.conditions[?(@.type=="{names.ConditionType.COMPLETE}")].status'),
            Column("Reason", f'.status.conditions[?(@.type=="{names.ConditionType.COMPLETE}")].reason'),
            Column("Cost-Millis", ".status.costMillis", "integer", "Cost in thousandths of the currency.", wide=True),
            Column("Ends", ".status.estimatedCompletionTime", description="Estimated end of the study.", wide=True),
            _AGE,
        ),
        fields=(".spec.target.kind", ".spec.target.name", ".spec.action"),
    ),
    Definition(
        names.STUDY_RECORDS,
        StudyRecord,
        "studyrec",
        (Column("Study", ".spec.study"), _AGE),
    ),
    Definition(
        names.LICENCES,
        Licence,
        "lic",
        (
            Column("Seats", ".spec.seats", "integer", "Number of seats."),
            Column("Used", ".status.used", "integer", "Seats that Workers occupy."),
            Column("Waiting", ".status.waiting", "integer", "Workers that wait for a seat."),
            Column("Services", ".status.services", "integer", "SimulationServices that refer to it."),
            *_make_condition_columns(names.ConditionType.AVAILABLE),
            Column("Per-Namespace", ".spec.maxSeatsPerNamespace", "integer", "Maximum per namespace.", wide=True),
            _AGE,
        ),
    ),
    Definition(
        names.USAGES,
        Usage,
        "simuse",
        (
            Column("Workers", ".status.workers", "integer", "Machines that run."),
            Column("Accounted-Until", ".status.accountedUntil", description="Time up to which the sums are complete."),
            _AGE,
        ),
    ),
    Definition(
        names.OCCI_MIXINS,
        OcciMixin,
        "omixin",
        (
            Column("Term", ".spec.term"),
            Column("Scheme", ".spec.scheme"),
            Column("Location", ".spec.location", wide=True),
            _AGE,
        ),
    ),
    Definition(
        names.OCCI_LINKS,
        OcciLink,
        "olink",
        (
            Column("Source", ".spec.source"),
            Column("Target", ".spec.target"),
            Column("Kind", ".spec.kind", wide=True),
            _AGE,
        ),
    ),
)


def build_crd(definition: Definition) -> Json:
    """Return the CustomResourceDefinition of one kind."""
    resource = definition.resource
    schema = build_schema(definition.model)
    if resource.name_max is not None:
        name = {"type": "string", "maxLength": resource.name_max, "pattern": _DNS_LABEL}
        schema["properties"]["metadata"] = {"type": "object", "properties": {"name": name}}
    subresources: Json = {"status": {}} if "status" in schema["properties"] else {}
    if definition.scalable:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version: Json = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
        "additionalPrinterColumns": [column.to_json() for column in definition.columns],
    }
    if definition.fields:
        version["selectableFields"] = [{"jsonPath": path} for path in definition.fields]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [definition.short_name],
                "categories": [names.CATEGORY],
            },
            "versions": [version],
        },
    }


def build_crds() -> list[Json]:
    """Return the CustomResourceDefinitions of all kinds."""
    return [build_crd(definition) for definition in DEFINITIONS]
