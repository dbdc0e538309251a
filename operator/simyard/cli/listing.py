# SPDX-License-Identifier: Apache-2.0
"""Commands ``services``, ``pools``, ``workers``, ``licences`` and ``describe``, which list and describe objects."""

from __future__ import annotations

import click

from simyard.api.licence import Licence, LicenceStatus
from simyard.api.names import LICENCES, SIMULATION_SERVICES, WORKER_POOLS, WORKERS, ConditionType
from simyard.api.simulation_service import DeclaredAction, DeclaredValue, SimulationService
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard.cli.output import (
    Row,
    as_list,
    format_age,
    format_condition,
    make_output_option,
    print_object,
    print_table,
    say,
)
from simyard.cli.targets import Target, TargetType

MAX_HOLDERS = 3
"""Maximum number of namespaces in the row of a Licence. With ``-o wide``, the row has all namespaces in the status."""
LICENCES_FORBIDDEN = """\
Licences are in no namespace: ask the platform team for a ClusterRoleBinding to simyard-view. The status of your own
service has the seats of its licence: kubectl get simulationservices -o wide"""
everywhere_option = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Include all namespaces.")


@click.command()
@everywhere_option
@make_output_option("wide")
@click.pass_obj
def services(kubectl: Kubectl, everywhere: bool, output: str | None) -> None:
    """List the published services."""
    items = kubectl.list_all(SIMULATION_SERVICES, everywhere=everywhere)
    if output in ("json", "yaml"):
        return print_object(as_list(items), output)
    header = ["NAME", "AVAILABLE", "ACTIONS", "POOLS", "WORKERS", "READY", "AGE"]
    wide = ["VENDOR", "VERSION", "DESCRIPTION"] if output == "wide" else []
    rows: list[Row] = []
    for service in map(SimulationService.model_validate, items):
        actions = ",".join(action.name for action in service.spec.interface.actions)
        row: list[object] = [
            service.metadata.name,
            format_condition(service.status.conditions, ConditionType.AVAILABLE),
            actions,
            service.status.pools,
            service.status.workers,
            service.status.ready_workers,
            format_age(service.metadata.creation_timestamp),
        ]
        if wide:
            row += [service.spec.vendor, service.spec.version, service.spec.description.partition("\n")[0]]
        rows.append(_with_namespace(row, service.metadata.namespace, everywhere))
    return _print("services", [*header, *wide], rows, everywhere)


@click.command()
@everywhere_option
@make_output_option("wide")
@click.pass_obj
def pools(kubectl: Kubectl, everywhere: bool, output: str | None) -> None:
    """List the pools of workers."""
    items = kubectl.list_all(WORKER_POOLS, everywhere=everywhere)
    if output in ("json", "yaml"):
        return print_object(as_list(items), output)
    header = ["NAME", "SERVICE", "DESIRED", "READY", "AVAILABLE", "AGE"]
    wide = ["T_BOOT", "T_R", "T_M", "SITES"] if output == "wide" else []
    rows: list[Row] = []
    for pool in map(WorkerPool.model_validate, items):
        row: list[object] = [
            pool.metadata.name,
            pool.spec.service_ref.name,
            0 if pool.spec.suspend else pool.spec.replicas,
            pool.status.ready_replicas,
            format_condition(pool.status.conditions, ConditionType.AVAILABLE),
            format_age(pool.metadata.creation_timestamp),
        ]
        if wide:
            start = pool.status.start
            row += [
                format_seconds(start.boot_milliseconds if start else None),
                format_seconds(start.registered_milliseconds if start else None),
                format_seconds(start.published_milliseconds if start else None),
                ",".join(pool.spec.placement.sites) or "<any>",
            ]
        rows.append(_with_namespace(row, pool.metadata.namespace, everywhere))
    return _print("pools", [*header, *wide], rows, everywhere)


@click.command()
@click.argument("pool", required=False)
@everywhere_option
@make_output_option("wide")
@click.pass_obj
def workers(kubectl: Kubectl, pool: str | None, everywhere: bool, output: str | None) -> None:
    """List the workers of one POOL, or all workers of the namespace."""
    labels = f"simyard.dev/pool={pool}" if pool else ""
    items = kubectl.list_all(WORKERS, labels=labels, everywhere=everywhere)
    if output in ("json", "yaml"):
        return print_object(as_list(items), output)
    header = ["NAME", "SERVICE", "SITE", "READY", "AGE"]
    wide = ["MACHINE", "STATE", "ADAPTER"] if output == "wide" else []
    rows: list[Row] = []
    for worker in map(Worker.model_validate, items):
        row: list[object] = [
            worker.metadata.name,
            worker.spec.service_ref.name,
            worker.spec.site,
            format_condition(worker.status.conditions, ConditionType.READY),
            format_age(worker.metadata.creation_timestamp),
        ]
        if wide:
            row += [worker.status.machine_id, worker.status.machine_state, worker.status.adapter_version]
        rows.append(_with_namespace(row, worker.metadata.namespace, everywhere))
    return _print("workers", [*header, *wide], rows, everywhere)


@click.command()
@make_output_option("wide")
@click.pass_obj
def licences(kubectl: Kubectl, output: str | None) -> None:
    """List the Licences of the cluster: their seats, and the namespaces that occupy the seats.

    Licences are cluster-scoped, so you need the right to list them in the cluster.
    """
    try:
        items = kubectl.list_all(LICENCES)
    except KubectlError as error:
        if "(Forbidden)" in error.message:
            raise KubectlError(f"{error.message}\n{LICENCES_FORBIDDEN}", error.code) from None
        raise
    if output in ("json", "yaml"):
        return print_object(as_list(items), output)
    header = ["NAME", "SEATS", "TAKEN", "FREE", "WAITING", "HELD-BY", "AGE"]
    wide = ["SERVICES", "OPEN-TO", "MAX-PER-NAMESPACE"] if output == "wide" else []
    rows: list[Row] = []
    for licence in map(Licence.model_validate, items):
        spec, status, allowed = licence.spec, licence.status, licence.spec.allowed_namespaces
        row: list[object] = [
            licence.metadata.name,
            spec.seats,
            status.used,
            max(0, spec.seats - status.used),
            status.waiting,
            _format_holders(status, None if wide else MAX_HOLDERS),
            format_age(licence.metadata.creation_timestamp),
        ]
        if wide:
            row += [
                status.services,
                "<all>" if allowed.from_ == "All" else ",".join(allowed.names),
                spec.max_seats_per_namespace,
            ]
        rows.append(row)
    return _print("licences", [*header, *wide], rows, everywhere=False)


@click.command()
@click.argument("target", type=TargetType())
@make_output_option()
@click.pass_obj
def describe(kubectl: Kubectl, target: Target, output: str | None) -> None:
    """Show the attributes and actions of the service of TARGET (service/NAME, pool/NAME or worker/NAME)."""
    service = target.get_service(kubectl)
    if output:
        return print_object(service.spec.interface.to_json(), output)
    spec = service.spec
    title = spec.display_name or service.metadata.name
    say(" ".join(part for part in (title, spec.version, f"({spec.vendor})" if spec.vendor else "") if part))
    if spec.description:
        say(f"\n{spec.description.strip()}")
    if spec.interface.attributes:
        say("\nAttributes:")
        print_table(
            ["  NAME", "TYPE", "UNIT", "MUTABLE", "DESCRIPTION"],
            [(f"  {it.name}", it.type, it.unit, it.mutable, it.description) for it in spec.interface.attributes],
        )
    for action in spec.interface.actions:
        _describe_action(action)
    return None


def format_seconds(milliseconds: int | None) -> str:
    """Return a duration in the form ``1.234s``, or ``<none>``."""
    return "<none>" if milliseconds is None else f"{milliseconds / 1000:.3f}s"


def _describe_action(action: DeclaredAction) -> None:
    say(f"\nAction {action.name} ({action.mode}, at most {action.timeout_seconds} s)")
    if action.description:
        say(f"  {action.description}")
    if action.parameters:
        print_table(
            ["  PARAMETER", "TYPE", "UNIT", "DEFAULT", "ACCEPTED", "DESCRIPTION"],
            [
                (
                    f"  {it.name}",
                    it.type,
                    it.unit,
                    "<required>" if it.required else it.default,
                    _accepted(it),
                    it.description,
                )
                for it in action.parameters
            ],
        )
    if action.result:
        print_table(
            ["  RESULT", "TYPE", "UNIT", "DESCRIPTION"],
            [(f"  {it.name}", it.type, it.unit, it.description) for it in action.result],
        )


def _accepted(value: DeclaredValue) -> str:
    if value.enum:
        return "|".join(value.enum)
    if value.minimum is not None or value.maximum is not None:
        low = "" if value.minimum is None else value.minimum
        high = "" if value.maximum is None else value.maximum
        return f"{low}..{high}"
    return value.pattern or "any"


def _format_holders(status: LicenceStatus, most: int | None) -> str:
    """Return up to ``most`` namespaces with the seats that they occupy, and the sum of the seats of all others."""
    named = status.namespaces[:most]
    parts = [f"{item.name}={item.used}" for item in named]
    if rest := status.used - sum(item.used for item in named):
        parts.append(f"others={rest}" if named else f"unknown={rest}")
    return ",".join(parts)


def _with_namespace(row: list[object], namespace: str, everywhere: bool) -> Row:
    return [namespace, *row] if everywhere else row


def _print(plural: str, header: list[str], rows: list[Row], everywhere: bool) -> None:
    if not rows:
        say(f"No {plural} found.", err=True)
        return
    print_table(["NAMESPACE", *header] if everywhere else header, rows)
