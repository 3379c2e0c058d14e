"""pilotctl waypoint: create, list and delete waypoints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import yaml

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import NAMESPACE_DEFAULT, Cluster, default_namespace, with_cluster
from pilot.cli.ctl.command import AliasGroup, with_output
from pilot.cli.ctl.durations import parse_seconds
from pilot.cli.ctl.output import CommandResult, TextTable, write
from pilot.cli.ctl.request_texts import NAMESPACE as NAMESPACE_NAME
from pilot.cli.ctl.request_texts import OBJECT_NAME
from pilot.kube.object_client import ResourceKey, VersionedKind, resource_key

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Function = TypeVar("Function", bound=Callable[..., Any])
Plain = dict[str, Any]
GATEWAY = VersionedKind("gateway.networking.k8s.io/v1", "Gateway")
NAMESPACE = VersionedKind("v1", "Namespace")
CLASS = "istio-waypoint"
TRAFFIC = ("service", "workload", "all", "none")
FOR, REVISION, USE = "istio.io/waypoint-for", "istio.io/rev", "istio.io/use-waypoint"
MODE = "istio.io/dataplane-mode"
_TIMEOUT = "--waypoint-timeout"
_POLL = 0.5
"""Seconds between two looks at the status of a waypoint."""
_name = click.option("--name", type=OBJECT_NAME, default="waypoint", show_default=True, help="name of the waypoint")
_namespace = click.option(
    "-n", "--namespace", type=NAMESPACE_NAME, help=f"namespace of the waypoint ({NAMESPACE_DEFAULT})"
)
_everywhere = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="waypoints in all namespaces")


@click.group(cls=AliasGroup)
def waypoint() -> None:
    """Create, list and delete waypoints."""


def _described(function: Function) -> Function:
    """Add the options that describe a waypoint to a command, except for its namespace."""
    options = (
        _name,
        click.option("--for", "traffic", type=click.Choice(TRAFFIC), help="traffic that the waypoint handles"),
        click.option("-r", "--revision", default="", help="revision of the control plane of the waypoint"),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _waiting(function: Function) -> Function:
    """Add the options that wait for waypoints to a command."""
    wait = click.option("-w", "--wait", "wait", is_flag=True, help="wait until the waypoint is programmed")
    timeout = click.option(_TIMEOUT, "timeout", default="90s", show_default=True, help="timeout of --wait, such as 2m")
    return wait(timeout(function))


@waypoint.command()
@_described
@click.option(
    "-n", "--namespace", type=NAMESPACE_NAME, help="namespace of the waypoint (default: that of kubectl apply)"
)
def generate(name: str, namespace: str | None, traffic: str | None, revision: str) -> None:
    """Print the Gateway of a waypoint."""
    write(yaml.safe_dump(_gateway(name, namespace, traffic, revision), sort_keys=False).rstrip("\n"))


@waypoint.command("apply")
@_described
@_namespace
@click.option("--enroll-namespace", "enroll", is_flag=True, help="label the namespace, so that it uses the waypoint")
@click.option("--overwrite", is_flag=True, help="with --enroll-namespace, replace the waypoint of the namespace")
@_waiting
@with_cluster
def apply(
    cluster: Cluster,
    name: str,
    namespace: str | None,
    traffic: str | None,
    revision: str,
    enroll: bool,
    overwrite: bool,
    wait: bool,
    timeout: str,
) -> None:
    """Create or change a waypoint."""
    seconds = parse_seconds(timeout, _TIMEOUT)
    namespace = namespace or default_namespace()
    gateway = _gateway(name, namespace, traffic, revision)

    async def work(objects: ObjectClient, _: ObjectClient) -> None:
        if enroll:
            await _check_namespace(objects, namespace, overwrite)
        await objects.apply(gateway)
        click.echo(f"✅ waypoint {namespace}/{name} applied")
        if wait:
            await _wait(objects, ResourceKey(GATEWAY, namespace, name), seconds)
            click.echo(f"✅ waypoint {namespace}/{name} is ready!")
        if enroll:
            await objects.patch(ResourceKey(NAMESPACE, "", namespace), {"metadata": {"labels": {USE: name}}})
            click.echo(f'✅ namespace {namespace} labeled with "{USE}: {name}"')

    cluster.run(work)


@waypoint.command("list")
@_namespace
@_everywhere
@with_output
@with_cluster
def list_waypoints(cluster: Cluster, namespace: str | None, everywhere: bool) -> CommandResult:
    """List waypoints."""
    place = "" if everywhere else namespace or default_namespace()
    gateways = cluster.run(lambda objects, _: _waypoints(objects, place))
    head = ("NAMESPACE", "NAME", "REVISION", "TRAFFIC TYPE", "PROGRAMMED")
    rows = [
        (
            gateway["metadata"]["namespace"],
            gateway["metadata"]["name"],
            _labels(gateway).get(REVISION, "default"),
            _labels(gateway).get(FOR, "none"),
            next((c["status"] for c in _conditions(gateway) if c["type"] == "Programmed"), "False"),
        )
        for gateway in gateways
    ]
    return CommandResult(gateways, [_table(head, rows, everywhere)])


@waypoint.command()
@click.option("--name", default="", help="only the waypoint with this name")
@_namespace
@_everywhere
@_waiting
@with_output
@with_cluster
def status(
    cluster: Cluster, name: str, namespace: str | None, everywhere: bool, wait: bool, timeout: str
) -> CommandResult:
    """Show the status conditions of waypoints."""
    seconds = parse_seconds(timeout, _TIMEOUT)
    place = "" if everywhere else namespace or default_namespace()

    async def work(objects: ObjectClient, _: ObjectClient) -> list[Plain]:
        def read() -> Awaitable[list[Plain]]:
            return _waypoints(objects, place, name)

        if wait:
            await asyncio.gather(*(_wait(objects, resource_key(gateway), seconds) for gateway in await read()))
        return await read()

    gateways = cluster.run(work)
    head = ("NAMESPACE", "NAME", "STATUS", "TYPE", "REASON", "MESSAGE")
    rows = [
        (
            gateway["metadata"]["namespace"],
            gateway["metadata"]["name"],
            *(condition.get(field, "") for field in ("status", "type", "reason", "message")),
        )
        for gateway in gateways
        for condition in _conditions(gateway) or [{"status": "Unknown", "message": "no status yet"}]
    ]
    return CommandResult(gateways, [_table(head, rows, everywhere)])


@waypoint.command()
@click.argument("names", nargs=-1)
@_namespace
@click.option("--all", "everything", is_flag=True, help="delete all waypoints in the namespace")
@click.option("-r", "--revision", default="", help="delete all waypoints of this revision in the namespace")
@with_cluster
def delete(cluster: Cluster, names: tuple[str, ...], namespace: str | None, everything: bool, revision: str) -> None:
    """Delete waypoints by their NAMES, or all of them."""
    if bool(names) == bool(everything or revision):
        raise click.UsageError("specify either NAMES, --all or --revision")
    place = namespace or default_namespace()

    async def work(objects: ObjectClient, _: ObjectClient) -> None:
        present = [
            str(gateway["metadata"]["name"])
            for gateway in await _waypoints(objects, place)
            if not revision or _labels(gateway).get(REVISION) == revision
        ]
        for name in names or present:
            exists = name in present and await objects.delete(ResourceKey(GATEWAY, place, name))
            click.echo(f"waypoint {place}/{name} {'deleted' if exists else 'not found'}")
        if not names and not present:
            of = f" of the revision {revision}" if revision else ""
            click.echo(f"No waypoints{of} in the namespace {place}: nothing was deleted.")

    cluster.run(work)


def _gateway(name: str, namespace: str | None, traffic: str | None, revision: str) -> Plain:
    if name == "none":
        raise click.BadParameter("'none' is reserved for objects without a waypoint", param_hint="'--name'")
    labels = ({FOR: traffic} if traffic else {}) | ({REVISION: revision} if revision else {})
    return {
        "apiVersion": GATEWAY.api_version,
        "kind": GATEWAY.name,
        "metadata": {
            **({"labels": labels} if labels else {}),
            "name": name,
            **({"namespace": namespace} if namespace else {}),
        },
        "spec": {
            "gatewayClassName": CLASS,
            "listeners": [{"name": "mesh", "port": 15008, "protocol": "HBONE"}],
        },
    }


async def _check_namespace(objects: ObjectClient, namespace: str, overwrite: bool) -> None:
    """Warn if the namespace is not in ambient mode. Raise CommandError if it is absent or has another waypoint."""
    plain = await objects.get(ResourceKey(NAMESPACE, "", namespace))
    if plain is None:
        raise CommandError(f"there is no namespace {namespace}")
    labels = _labels(plain)
    if USE in labels and not overwrite:
        raise CommandError(f"the namespace {namespace} uses the waypoint {labels[USE]}; --overwrite replaces it")
    if labels.get(MODE) != "ambient":
        click.echo(
            f"! the namespace {namespace} is not in ambient mode: kubectl label namespace {namespace} {MODE}=ambient",
            err=True,
        )


async def _wait(objects: ObjectClient, key: ResourceKey, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        gateway = await objects.get(key) or {}
        if any(c["type"] == "Programmed" and c["status"] == "True" for c in _conditions(gateway)):
            return
        if time.monotonic() > deadline:
            raise CommandError(f"{key.namespace}/{key.name} is not programmed after {seconds:g} s")
        await asyncio.sleep(_POLL)


async def _waypoints(objects: ObjectClient, namespace: str, name: str = "") -> list[Plain]:
    gateways = await objects.list(GATEWAY, namespace=namespace)
    selection = [
        gateway
        for gateway in gateways
        if gateway.get("spec", {}).get("gatewayClassName") == CLASS and name in ("", gateway["metadata"]["name"])
    ]
    return sorted(selection, key=lambda gateway: (gateway["metadata"]["namespace"], gateway["metadata"]["name"]))


def _labels(plain: Plain) -> dict[str, str]:
    labels: dict[str, str] = plain["metadata"].get("labels") or {}
    return labels


def _conditions(gateway: Plain) -> list[dict[str, str]]:
    conditions: list[dict[str, str]] = gateway.get("status", {}).get("conditions") or []
    return conditions


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], with_namespace: bool) -> TextTable | str:
    first = 0 if with_namespace else 1
    lines = [row[first:] for row in rows]
    return TextTable(head[first:], lines) if lines else "No waypoints found."
