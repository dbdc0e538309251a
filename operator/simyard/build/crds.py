"""The CustomResourceDefinitions of our kinds."""

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
from simyard.api.usage import Usage
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.build.schema import structural_schema
from simyard_sites.kubernetes.resource import Resource

_DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``; ``wide`` ones are shown with ``-o wide`` only."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False

    def to_json(self) -> Json:
        """As in ``additionalPrinterColumns``."""
        column: Json = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            column["description"] = self.description
        if self.wide:
            column["priority"] = 1
        return column


@dataclass(frozen=True, slots=True)
class Definition:
    """What a CustomResourceDefinition says beside the schema. ``fields`` can be used in field selectors."""

    resource: Resource
    model: type[BaseModel]
    short_name: str
    columns: tuple[Column, ...]
    fields: tuple[str, ...] = ()
    scalable: bool = False


def _condition(kind: names.ConditionType) -> tuple[Column, Column]:
    entry = f'.status.conditions[?(@.type=="{kind}")]'
    return Column(kind.value, f"{entry}.status"), Column("Reason", f"{entry}.reason")


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

DEFINITIONS = (
    Definition(
        names.CLOUD_SITES,
        CloudSite,
        "csite",
        (
            *_condition(names.ConditionType.READY),
            Column("Trust", ".spec.trust"),
            Column("Workers", ".status.workers.total", "integer", "Machines of ours that are there."),
            Column("Version", ".status.version", description="What answers there."),
            Column("Max", ".spec.limits.maxWorkers", "integer", "Most workers at the same time.", wide=True),
            Column("Breaker", ".status.breaker.state", description="Closed is good.", wide=True),
            Column("Boot-Ms", ".status.stages.totalMilliseconds", "integer", "Median start of a machine.", wide=True),
            Column("Cordoned", ".spec.cordoned", "boolean", "No new workers start there.", wide=True),
            _AGE,
        ),
    ),
    Definition(
        names.SIMULATION_SERVICES,
        SimulationService,
        "simsvc",
        (
            *_condition(names.ConditionType.AVAILABLE),
            Column("Version", ".spec.version", description="Version of the simulation program."),
            Column("Pools", ".status.pools", "integer"),
            Column("Workers", ".status.workers", "integer"),
            Column("Ready", ".status.readyWorkers", "integer", "Workers that take actions."),
            Column("Frontends", ".status.frontends.ready", "integer", "OCCI frontends that answer.", wide=True),
            Column("Seats", ".status.licence.seats", "integer", "Seats of its licence.", wide=True),
            Column("Taken", ".status.licence.taken", "integer", "Seats that are taken, here and by others.", wide=True),
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
            Column("Desired", ".spec.replicas", "integer", "How many workers there should be."),
            Column("Ready", ".status.readyReplicas", "integer", "Workers that take actions."),
            Column("Updated", ".status.updatedReplicas", "integer", "Workers as the service and the pool say now."),
            *_condition(names.ConditionType.AVAILABLE),
            Column("Starting", ".status.startingReplicas", "integer", "Workers on their way.", wide=True),
            Column("Failed", ".status.failedReplicas", "integer", "Workers about to be replaced.", wide=True),
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
            Column("Machine", ".status.machineState", description="What the site says of the machine."),
            *_condition(names.ConditionType.READY),
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
            Column("Kind", ".spec.target.kind", description="On what it is called."),
            Column("Target", ".spec.target.name"),
            Column("Percent", ".status.percent", "integer", "How much of it is done."),
            Column("Complete", f'.status.conditions[?(@.type=="{names.ConditionType.COMPLETE}")].status'),
            Column("Failed", f'.status.conditions[?(@.type=="{names.ConditionType.FAILED}")].status'),
            Column("Worker", ".status.worker", description="The worker that runs it or ran it.", wide=True),
            Column("Attempts", ".status.attempts", "integer", wide=True),
            Column("Failure", ".status.failure.reason", wide=True),
            _AGE,
        ),
        fields=(".spec.target.kind", ".spec.target.name", ".spec.action"),
    ),
    Definition(
        names.LICENCES,
        Licence,
        "lic",
        (
            Column("Seats", ".spec.seats", "integer", "Seats in all."),
            Column("Used", ".status.used", "integer", "Seats that Workers hold."),
            Column("Waiting", ".status.waiting", "integer", "Workers that wait for a seat."),
            Column("Services", ".status.services", "integer", "SimulationServices that name it."),
            *_condition(names.ConditionType.AVAILABLE),
            Column("Per-Namespace", ".spec.maxSeatsPerNamespace", "integer", "Most seats of one namespace.", wide=True),
            _AGE,
        ),
    ),
    Definition(
        names.USAGES,
        Usage,
        "simuse",
        (
            Column("Workers", ".status.workers", "integer", "Machines that run."),
            Column("Accounted-Until", ".status.accountedUntil", description="The latest time of a row."),
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


def custom_resource_definition(definition: Definition) -> Json:
    """The CustomResourceDefinition of one kind."""
    resource = definition.resource
    schema = structural_schema(definition.model)
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


def custom_resource_definitions() -> list[Json]:
    """Those of all kinds."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
