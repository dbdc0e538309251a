"""``services``, ``pools``, ``workers`` and ``describe``: what there is."""

from __future__ import annotations

import click

from simyard.api.names import SIMULATION_SERVICES, WORKER_POOLS, WORKERS, ConditionType
from simyard.api.simulation_service import DeclaredAction, DeclaredValue, SimulationService
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import Row, age, as_list, condition_text, output_option, print_object, print_table, say
from simyard.cli.targets import Target, TargetType

everywhere_option = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")


@click.command()
@everywhere_option
@output_option("wide")
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
            condition_text(service.status.conditions, ConditionType.AVAILABLE),
            actions,
            service.status.pools,
            service.status.workers,
            service.status.ready_workers,
            age(service.metadata.creation_timestamp),
        ]
        if wide:
            row += [service.spec.vendor, service.spec.version, service.spec.description.partition("\n")[0]]
        rows.append(_with_namespace(row, service.metadata.namespace, everywhere))
    return _print("services", [*header, *wide], rows, everywhere)


@click.command()
@everywhere_option
@output_option("wide")
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
            condition_text(pool.status.conditions, ConditionType.AVAILABLE),
            age(pool.metadata.creation_timestamp),
        ]
        if wide:
            start = pool.status.start
            row += [
                seconds_text(start.boot_milliseconds if start else None),
                seconds_text(start.registered_milliseconds if start else None),
                seconds_text(start.published_milliseconds if start else None),
                ",".join(pool.spec.placement.sites) or "<any>",
            ]
        rows.append(_with_namespace(row, pool.metadata.namespace, everywhere))
    return _print("pools", [*header, *wide], rows, everywhere)


@click.command()
@click.argument("pool", required=False)
@everywhere_option
@output_option("wide")
@click.pass_obj
def workers(kubectl: Kubectl, pool: str | None, everywhere: bool, output: str | None) -> None:
    """List the workers, of one POOL or all."""
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
            condition_text(worker.status.conditions, ConditionType.READY),
            age(worker.metadata.creation_timestamp),
        ]
        if wide:
            row += [worker.status.machine_id, worker.status.machine_state, worker.status.adapter_version]
        rows.append(_with_namespace(row, worker.metadata.namespace, everywhere))
    return _print("workers", [*header, *wide], rows, everywhere)


@click.command()
@click.argument("target", type=TargetType())
@output_option()
@click.pass_obj
def describe(kubectl: Kubectl, target: Target, output: str | None) -> None:
    """Show what a service offers: its attributes and actions. TARGET is service/NAME, pool/NAME or worker/NAME."""
    service = target.service(kubectl)
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


def seconds_text(milliseconds: int | None) -> str:
    """``1.234s``."""
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


def _with_namespace(row: list[object], namespace: str, everywhere: bool) -> Row:
    return [namespace, *row] if everywhere else row


def _print(what: str, header: list[str], rows: list[Row], everywhere: bool) -> None:
    if not rows:
        say(f"No {what} found.", err=True)
        return
    print_table(["NAMESPACE", *header] if everywhere else header, rows)
