# SPDX-License-Identifier: Apache-2.0
"""Checks of a service's manifest that its schema cannot express, and the plan of the service's status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import Condition, Json, Metadata, set_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.simulation_service import LicenceStatus, SimulationService, SimulationServiceStatus
from simyard.plan.frontends import FRONTEND_CONDITIONS, FrontendsView, plan_frontend_conditions
from simyard.plan.licence import Terms, plan_licence_condition
from simyard.plan.revision import compute_service_digest
from simyard_adapter.commands import CommandSet
from simyard_adapter.declarations import Interface, InvalidValueError, InvalidValuesError, Value, check_values

NO_FRONTENDS = FrontendsView()


@dataclass(frozen=True, slots=True)
class PublishedService:
    """SimulationService, with the results of its checks.

    Attributes:
        service: The SimulationService object.
        interface: The interface in a form that checks values.
        problem: Error text if the manifest is invalid, else empty.
        digest: Hash of the parts of the service from which machines are made, except the image.
    """

    service: SimulationService
    interface: Interface
    problem: str
    digest: str = ""

    @property
    def metadata(self) -> Metadata:
        """Metadata of the object."""
        return self.service.metadata


@dataclass(frozen=True, slots=True)
class ServiceCounts:
    """Numbers of a service's pools and workers."""

    pools: int
    workers: int
    ready: int


def read_service(raw: Json) -> PublishedService:
    """Parse and check a SimulationService object, and return it.

    Raises:
        ValueError: The object does not match the schema (``pydantic.ValidationError``).
    """
    service = SimulationService.model_validate(raw)
    try:
        interface = Interface.from_json(service.spec.interface.to_json())
    except ValueError as error:
        return PublishedService(service, Interface(), f"spec.interface: {error}")
    return PublishedService(
        service, interface, "; ".join(_find_problems(service, interface)), compute_service_digest(service)
    )


def find_values_problem(service: PublishedService, values: Json) -> str:
    """Return an error text if initial values of attributes are invalid, else an empty text."""
    try:
        check_values(values, service.interface.attributes, "spec.attributes", partial=True)
    except InvalidValuesError as error:
        return str(error)
    return ""


def plan_service(
    published: PublishedService,
    counts: ServiceCounts,
    now: datetime,
    licence: LicenceStatus | None = None,
    terms: Terms | None = None,
    frontends: FrontendsView = NO_FRONTENDS,
) -> SimulationServiceStatus:
    """Return the status of a service; it is Available if its manifest is valid.

    Args:
        published: The service.
        counts: Numbers of its pools and workers.
        now: Present time.
        licence: Seats of its licence, if it has one.
        terms: Terms of this licence for the service.
        frontends: Observed state of its frontends.
    """
    service, problem = published.service, published.problem
    condition = Condition(
        type=ConditionType.AVAILABLE,
        status="False" if problem else "True",
        reason=Reason.INTERFACE_INVALID if problem else Reason.PUBLISHED,
        message=problem[:32768],
        last_transition_time=now,
        observed_generation=service.metadata.generation,
    )
    some = [plan_licence_condition(service, terms, now), *plan_frontend_conditions(service, frontends, now)]
    present = [item for item in some if item is not None]
    left = {ConditionType.LICENCE_PERMITTED, *FRONTEND_CONDITIONS} - {item.type for item in present}
    conditions = [item for item in service.status.conditions if item.type not in left]
    for item in (condition, *present):
        conditions = set_condition(conditions, item)
    return SimulationServiceStatus(
        observed_generation=service.metadata.generation,
        interface_digest="" if problem else published.interface.compute_digest(),
        pools=counts.pools,
        workers=counts.workers,
        ready_workers=counts.ready,
        licence=licence,
        frontends=frontends.status,
        endpoints=frontends.endpoints,
        conditions=conditions,
    )


def _find_problems(service: SimulationService, interface: Interface) -> Iterator[str]:
    yield from _find_value_problems(interface.attributes, "spec.interface.attributes")
    for action in interface.actions:
        path = f"spec.interface.actions[{action.name}]"
        yield from _find_value_problems(action.parameters, f"{path}.parameters")
        yield from _find_value_problems(action.result, f"{path}.result")
    if service.spec.connector.commands is not None:
        try:
            CommandSet.from_json(service.spec.connector.commands.to_json(), interface)
        except InvalidValuesError as error:
            yield from (f"spec.connector.commands.{item}" for item in error.errors)


def _find_value_problems(values: Iterable[Value], path: str) -> Iterator[str]:
    """Yield the errors in bounds and defaults of declared values."""
    for value in values:
        place = f"{path}[{value.name}]"
        if value.minimum is not None and value.maximum is not None and value.minimum > value.maximum:
            yield f"{place}.minimum: is above the maximum"
        if value.default is not None and value.holds_files:
            yield f"{place}.default: a file has no default, because each namespace has its own files: remove it"
        elif value.default is not None:
            try:
                value.check(value.default, f"{place}.default")
            except InvalidValueError as error:
                yield str(error)
