"""Whether a service's manifest makes sense beyond its schema, and the service's status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import Condition, Json, Metadata, set_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.simulation_service import LicenceStatus, SimulationService, SimulationServiceStatus
from simyard.plan.frontends import FRONTEND_CONDITIONS, FrontendsView, frontend_conditions
from simyard.plan.licence import Terms, licence_condition
from simyard.plan.revision import service_digest
from simyard_adapter.commands import CommandSet
from simyard_adapter.declarations import Interface, InvalidValueError, InvalidValuesError, Value, check_values

NO_FRONTENDS = FrontendsView()


@dataclass(frozen=True, slots=True)
class PublishedService:
    """A service with its interface in the form that checks values, and what is wrong with it (empty: nothing).

    ``digest`` changes with all that a machine is made from, but for the image.
    """

    service: SimulationService
    interface: Interface
    problem: str
    digest: str = ""

    @property
    def metadata(self) -> Metadata:
        """The object's metadata."""
        return self.service.metadata


@dataclass(frozen=True, slots=True)
class ServiceCounts:
    """Pools and workers of a service."""

    pools: int
    workers: int
    ready: int


def read_service(raw: Json) -> PublishedService:
    """A service from its object.

    Raises:
        ValueError: it does not fit the schema (``pydantic.ValidationError`` is one).
    """
    service = SimulationService.model_validate(raw)
    try:
        interface = Interface.from_json(service.spec.interface.to_json())
    except ValueError as error:
        return PublishedService(service, Interface(), f"spec.interface: {error}")
    return PublishedService(service, interface, "; ".join(_problems(service, interface)), service_digest(service))


def values_problem(service: PublishedService, values: Json) -> str:
    """What is wrong with initial values of attributes; empty when nothing is."""
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
    """The service's status: Available when its manifest makes sense.

    ``licence``: the seats of its licence, if it has one; ``terms``: what that licence offers to it; ``frontends``: what
    is seen of its frontends.
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
    some = [licence_condition(service, terms, now), *frontend_conditions(service, frontends, now)]
    present = [item for item in some if item is not None]
    left = {ConditionType.LICENCE_PERMITTED, *FRONTEND_CONDITIONS} - {item.type for item in present}
    conditions = [item for item in service.status.conditions if item.type not in left]
    for item in (condition, *present):
        conditions = set_condition(conditions, item)
    return SimulationServiceStatus(
        observed_generation=service.metadata.generation,
        interface_digest="" if problem else published.interface.digest(),
        pools=counts.pools,
        workers=counts.workers,
        ready_workers=counts.ready,
        licence=licence,
        frontends=frontends.status,
        endpoints=frontends.endpoints,
        conditions=conditions,
    )


def _problems(service: SimulationService, interface: Interface) -> Iterator[str]:
    yield from _value_problems(interface.attributes, "spec.interface.attributes")
    for action in interface.actions:
        path = f"spec.interface.actions[{action.name}]"
        yield from _value_problems(action.parameters, f"{path}.parameters")
        yield from _value_problems(action.result, f"{path}.result")
    if service.spec.connector.commands is not None:
        try:
            CommandSet.from_json(service.spec.connector.commands.to_json(), interface)
        except InvalidValuesError as error:
            yield from (f"spec.connector.commands.{item}" for item in error.errors)


def _value_problems(values: Iterable[Value], path: str) -> Iterator[str]:
    """Bounds that exclude everything, defaults that are out of bounds."""
    for value in values:
        place = f"{path}[{value.name}]"
        if value.minimum is not None and value.maximum is not None and value.minimum > value.maximum:
            yield f"{place}.minimum: is above the maximum"
        if value.default is not None:
            try:
                value.check(value.default, f"{place}.default")
            except InvalidValueError as error:
                yield str(error)
