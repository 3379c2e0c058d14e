"""pilotctl ztunnel-config: show the configuration, certificates and connections of a ztunnel, or set its log levels."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import click

from pilot.cli.ctl.command import AliasGroup, with_output
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.request_texts import WORKLOAD_ADDRESS
from pilot.cli.ctl.tables import ztunnels as tables
from pilot.cli.ctl.tables.ztunnels import ZtunnelDump
from pilot.cli.ctl.ztunnel import ZtunnelSelection, with_ztunnel_dump, with_ztunnels

ALIASES = {
    "w": "workload",
    "workloads": "workload",
    "s": "service",
    "svc": "service",
    "services": "service",
    "p": "policy",
    "pol": "policy",
    "policies": "policy",
    "cert": "certificate",
    "certs": "certificate",
    "certificates": "certificate",
    "cons": "connections",
    "o": "log",
}
LEVELS = {"warning": "warn", "critical": "error"} | {
    level: level for level in ("trace", "debug", "info", "warn", "error", "off")
}
"""Levels of istioctl, and what ztunnel calls them."""
POD = "NAME is the Pod of a ztunnel. A Pod or workload that is not one stands for the ztunnel on its node"


@click.group(cls=AliasGroup, aliases=ALIASES)
def ztunnel_config() -> None:
    """Show the configuration, certificates and connections of a ztunnel, or set its log levels.

    The source is the admin interface of a ztunnel in the cluster, or one with --ztunnel or --file.
    """


@ztunnel_config.command(
    help=f"Show workloads: addresses, nodes, waypoints and protocols.\n\n{POD}, and only the Pod is shown."
)
@click.option(
    "--address", "ip", type=WORKLOAD_ADDRESS, default="", metavar="IP", help="only workloads with this address"
)
@click.option("--workload-namespace", "inside", default="", help="only workloads in this namespace")
@click.option("--workload-node", "on", default="", help="only workloads on this node")
@with_output
@with_ztunnel_dump()
def workload(dump: ZtunnelDump, ip: str, inside: str, on: str) -> CommandResult:
    selected = tables.workloads(dump, ip, inside, on)
    return CommandResult(selected, [TextTable(*tables.workload_table(dump, selected))])


@ztunnel_config.command(help=f"Show services: addresses, waypoints and the number of healthy endpoints.\n\n{POD}.")
@click.option("--service-namespace", "inside", default="", help="only services in this namespace")
@with_output
@with_ztunnel_dump()
def service(dump: ZtunnelDump, inside: str) -> CommandResult:
    selected = tables.services(dump, inside)
    return CommandResult(selected, [TextTable(*tables.service_table(dump, selected))])


@ztunnel_config.command(help=f"Show authorization policies.\n\n{POD}.")
@click.option("--policy-namespace", "inside", default="", help="only policies in this namespace")
@with_output
@with_ztunnel_dump()
def policy(dump: ZtunnelDump, inside: str) -> CommandResult:
    selected = tables.policies(dump, inside)
    return CommandResult(selected, [TextTable(*tables.policy_table(selected))])


@ztunnel_config.command(help=f"Show certificates with their validity.\n\n{POD}.")
@with_output
@with_ztunnel_dump(needs_one=True)
def certificate(dump: ZtunnelDump) -> CommandResult:
    certificates = dump.objects("certificates")
    return CommandResult(certificates, [TextTable(*tables.certificate_table(certificates))])


@ztunnel_config.command(help=f"Show open connections of workloads.\n\n{POD}, and only its connections are shown.")
@click.option("--workload-namespace", "inside", default="", help="only workloads in this namespace")
@click.option("--direction", type=click.Choice(("inbound", "outbound")), help="only connections of this direction")
@click.option("--raw", is_flag=True, help="show addresses instead of the names of services and workloads")
@with_output
@with_ztunnel_dump(needs_one=True)
def connections(dump: ZtunnelDump, inside: str, direction: str | None, raw: bool) -> CommandResult:
    selected = tables.connections(dump, inside)
    return CommandResult(selected, [TextTable(*tables.connection_table(dump, selected, direction or "", raw))])


@ztunnel_config.command("all", help=f"Show everything, or the whole config_dump with -o json.\n\n{POD}.")
@click.option("--with-headers", "headers", is_flag=True, help="show a heading above each table")
@with_output
@with_ztunnel_dump()
def everything(dump: ZtunnelDump, headers: bool) -> CommandResult:
    return CommandResult(dump.dump, _tables(dump, headers))


def _tables(dump: ZtunnelDump, headers: bool) -> Iterator[str | TextTable]:
    whole = ZtunnelDump(dump.dump)
    for heading, table in (
        ("WORKLOAD", tables.workload_table(whole, tables.workloads(whole))),
        ("SERVICE", tables.service_table(whole, tables.services(whole))),
        ("POLICY", tables.policy_table(tables.policies(whole))),
        ("SECRET", tables.certificate_table(whole.objects("certificates"))),
        ("CONNECTIONS", tables.connection_table(whole, tables.connections(whole))),
    ):
        yield ""
        yield from (f"------ {heading} INFO ------", "") if headers else ()
        yield TextTable(*table)


@ztunnel_config.command(help=f"Show or change the log levels of ztunnels, by default of all.\n\n{POD}.")
@click.option("--level", "text", default="", metavar="[LOGGER:]LEVEL,…", help=f"levels to set: {', '.join(LEVELS)}")
@click.option("-r", "--reset", is_flag=True, help="set the levels that ztunnel has started with")
@with_ztunnels
def log(ztunnels: ZtunnelSelection, text: str, reset: bool) -> None:
    if reset and text:
        raise click.UsageError("--level and --reset are mutually exclusive")
    levels = ",".join(_level(part) for part in text.split(",")) if text else ""
    query = "?reset" if reset else f"?level={quote(levels)}" if levels else ""
    for name, answer in ztunnels.post(f"logging{query}"):
        click.echo(f"{name}:\n{answer.rstrip()}\n")


def _level(text: str) -> str:
    """Return a level in the form of ztunnel, LOGGER=LEVEL or LEVEL. The names of loggers may contain "::"."""
    logger, _, level = text.replace("=", ":").rpartition(":")
    if level not in LEVELS:
        raise click.UsageError(f"--level {text!r}: invalid level {level!r}; valid levels are {', '.join(LEVELS)}")
    return f"{logger}={LEVELS[level]}" if logger else LEVELS[level]
