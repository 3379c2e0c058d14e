"""pilotctl shadow: compare this control plane with a running istiod on a live mesh."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import click

from deploy.operator.errors import SettingsError
from deploy.operator.inputs import UserSettings
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, with_cluster
from pilot.cli.ctl.commands.install import planned_changes
from pilot.cli.ctl.commands.manifest import read_cluster_installation, read_settings
from pilot.cli.ctl.connection import monitoring_port
from pilot.cli.ctl.html_page import build_page, write_page
from pilot.cli.ctl.output import FORMATS, CommandResult, Part, TextTable, show
from pilot.cli.ctl.reference import DEFAULT_REFERENCE, reference_addresses, reference_environment, reference_webhook
from pilot.install.install_plan import InstallPlan, build_install_plan
from pilot.install.verification import PlannedChange, find_changes
from pilot.kube.object_client import ObjectClient
from pilot.settings.parse import load
from pilot.shadow.injection_comparison import InjectionReport
from pilot.shadow.known_differences import ShadowVerdict
from pilot.shadow.reference_pages import DebugClosedError, ReferenceFault, ReferencePages
from pilot.shadow.shadow_report import ReferencePort, ShadowReport, compare_with_reference
from pilot.shadow.validation_comparison import ValidationReport

XDS_PORT, WEBHOOK_PORT = 15012, 15017
FOUND = 79
"""Exit status if --fail-on applies. It is the same as that of analyze."""


@click.command()
@click.option(
    "--reference",
    "references",
    multiple=True,
    default=(DEFAULT_REFERENCE,),
    show_default=True,
    metavar="NAME.NAMESPACE|URL",
    help="Service of the running istiod, or the monitoring address of one replica; may be repeated",
)
@click.option(
    "--environment",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="environment variable of the running istiod, instead of that of its Pod; may be repeated",
)
@click.option(
    "--as-proxies",
    is_flag=True,
    help=f"if debug pages are closed: connect to port {XDS_PORT} as one proxy of each workload; --reference is the "
    "Service, or the address of this port",
)
@click.option(
    "--webhook",
    default="",
    metavar="HOST:PORT",
    help=f"address of port {WEBHOOK_PORT} of the running istiod (default: forwarded from the Pod of the Service)",
)
@click.option("-r", "--revision", default="", help="revision of the running istiod (default: that of its Pod)")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="IstioOperator file: also report what pilotctl install -f FILE would change; may be repeated",
)
@click.option(
    "-s",
    "--set",
    "assignments",
    multiple=True,
    metavar="PATH=VALUE",
    help="setting of this installation, such as revision=pyistiod",
)
@click.option("--watch", "seconds", type=click.IntRange(1), metavar="SECONDS", help="repeat the comparison")
@click.option("--page", metavar="FILE", help="also write the report as an HTML page")
@click.option(
    "--fail-on",
    type=click.Choice([verdict.value for verdict in ShadowVerdict]),
    help=f"exit with status {FOUND} if there is a difference with this verdict",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True, help="output format"
)
@with_cluster
def shadow(
    cluster: Cluster,
    references: tuple[str, ...],
    variables: tuple[str, ...],
    as_proxies: bool,
    webhook: str,
    revision: str,
    files: tuple[str, ...],
    assignments: tuple[str, ...],
    seconds: int | None,
    page: str | None,
    fail_on: str | None,
    form: str,
) -> None:
    """Compare this control plane with a running istiod, without serving any proxy.

    The objects are read from the API server, and the connected proxies with their configuration from the debug pages of
    istiod. Its webhook reviews the objects. Nothing is written. With --as-proxies, short-lived tokens of the
    ServiceAccounts of workloads are requested instead of the pages. For each proxy, the configuration of this control
    plane is derived and compared. Differences are grouped by cause. With -f or --set, dry runs at the API server show
    what an installation would change.
    """
    plan = _plan(cluster, read_settings(files, assignments, "", "")) if files or assignments else None
    environ = {
        **os.environ,
        **reference_environment(cluster, references),
        **({"REVISION": revision} if revision else {}),
        **dict(_variable(text) for text in variables),
    }
    ctx = click.get_current_context()
    addresses = reference_addresses(ctx, cluster, references, _xds_port if as_proxies else monitoring_port)
    reviewer = webhook or reference_webhook(ctx, cluster, references, WEBHOOK_PORT)
    settings = load([], environ).settings

    async def compare(client: ObjectClient, _: ObjectClient) -> tuple[ShadowReport, list[PlannedChange] | None]:
        replicas = [] if as_proxies else [ReferencePages(address) for address in addresses]
        try:
            namespace = settings.mesh.registry.namespace
            source = _port(addresses[0], namespace) if as_proxies else replicas
            reviews = _port(reviewer, namespace) if reviewer else None
            report = await compare_with_reference(client, source, settings, reviews)
            return report, await find_changes(client, plan) if plan is not None else None
        except DebugClosedError as error:
            hint = f"--as-proxies compares what its port {XDS_PORT} sends to one proxy of each workload"
            raise CommandError(f"{error}; {hint}") from error
        except ReferenceFault as error:
            raise CommandError(str(error)) from error
        finally:
            for pages in replicas:
                await pages.close()

    while True:
        report, changes = cluster.run(compare, dry_run=True)
        shown = report.show() | ({"installation": _installation(changes)} if changes is not None else {})
        show(CommandResult(shown, _parts(report, changes)), form)
        if page is not None:
            write_page(page, build_page("Comparison with istiod", _parts(report, changes), seconds, time.time()))
        if seconds is None:
            break
        time.sleep(seconds)
    if fail_on is not None and report.count(ShadowVerdict(fail_on)):
        click.get_current_context().exit(FOUND)


def _xds_port(_: object) -> int:
    return XDS_PORT


def _port(address: str, namespace: str) -> ReferencePort:
    """Return the port at an address. Its certificate also has the name of the default revision."""
    return ReferencePort(address.rpartition("//")[2], f"istiod.{namespace}.svc", namespace)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="'--environment'")
    return name, value


def _plan(cluster: Cluster, settings: UserSettings) -> InstallPlan:
    """Return the plan of the installation that settings describe."""
    installation = read_cluster_installation(cluster, settings, force=False, dry_run=True)
    try:
        return build_install_plan(installation)
    except SettingsError as error:
        raise CommandError(str(error)) from error


def _installation(changes: list[PlannedChange]) -> list[dict[str, Any]]:
    return [{"object": str(change.key), "paths": change.paths} for change in changes]


def _parts(report: ShadowReport, changes: list[PlannedChange] | None) -> Iterator[Part]:
    proxies = report.proxies
    yield (
        f"Compared {proxies.resources} resources of {proxies.proxies} proxies in {proxies.seconds:.1f} s: "
        f"{proxies.equal} are equal."
    )
    if proxies.pods is not None:
        yield (
            f"They are one proxy of each workload, as which the command connected, and stand for {proxies.pods} Pods. "
            "The other Pods, and machines outside Kubernetes, were not compared."
        )
    shown = [cause.show() for cause in proxies.causes]
    if shown:
        rows = [
            (
                cause["verdict"],
                cause["proxies"],
                cause["resources"],
                " ".join(filter(None, (cause["object"].get("kind"), _name(cause["object"])))) or "-",
                cause["summary"],
                "{type} {name} {path}".format(**cause["example"]).strip(),
                cause["link"] or "-",
            )
            for cause in shown
        ]
        yield TextTable(("VERDICT", "PROXIES", "RESOURCES", "OBJECT", "DIFFERENCE", "EXAMPLE", "MORE"), rows)
    for connection, reason in proxies.rejected.items():
        yield f"! {connection} was not compared: {reason}"
    for connection in proxies.gone:
        yield f"! {connection} disconnected before it was compared"
    for connection, metadata in proxies.inferred.items():
        values = ", ".join(f"{key}={value}" for key, value in metadata.items())
        yield f"! {connection} has the metadata {values}, to judge by its configuration: istiod's pages lack them"
    for kind, count in proxies.unread.items():
        yield f"! {kind} of {count} proxies was not compared: the pages of the reference do not show it"
    yield f"{'✔' if report.authority.is_same else '✗'} certificate authority: {report.authority.message}"
    yield from _injection_parts(report.injection)
    yield from _validation_parts(report.validation)
    if report.findings:
        yield TextTable(("OBJECT", "STRICTER HERE", "REMEDY"), [tuple(finding) for finding in report.findings])
    if changes is not None:
        yield from planned_changes(changes)


def _injection_parts(report: InjectionReport) -> Iterator[Part]:
    if report.owners:
        yield f"Compared injected Pods of {report.owners} workloads: {report.equal} are equal."
    if report.differences:
        rows = [
            (one.verdict, one.pods, one.path, one.example, one.reference, one.pyistiod) for one in report.differences
        ]
        yield TextTable(("VERDICT", "WORKLOADS", "FIELD", "EXAMPLE", "ISTIOD", "PYISTIOD"), rows)
    for pod, reason in report.skipped.items():
        yield f"! the injection of {pod} was not compared: {reason}"


def _validation_parts(report: ValidationReport) -> Iterator[Part]:
    if report.skipped:
        yield f"! the validation of objects was not compared: {report.skipped} (--webhook HOST:PORT)"
        return
    equal = report.objects - len(report.differences)
    yield f"Compared the validation of {report.objects} objects: {equal} are accepted or refused by both."
    if report.differences:
        yield TextTable(("OBJECT", "ISTIOD", "PYISTIOD"), [tuple(one) for one in report.differences])


def _name(fields: dict[str, str]) -> str:
    return "/".join(filter(None, (fields.get("namespace"), fields.get("name"))))
