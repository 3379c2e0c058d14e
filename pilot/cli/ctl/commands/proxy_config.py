"""pilotctl proxy-config: show the configuration of a proxy, either from the control plane or from its Envoy."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import with_output
from pilot.cli.ctl.envoy import EnvoyDump, set_levels
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.proxy import ProxyTarget, with_envoy, with_proxy
from pilot.cli.ctl.tables import clusters, endpoints, extensions, listeners, routes, secrets

# Resource type and table module of each subcommand
KINDS: dict[str, tuple[str, ModuleType]] = {
    "clusters": ("cds", clusters),
    "listeners": ("lds", listeners),
    "routes": ("rds", routes),
    "endpoints": ("eds", endpoints),
    "secrets": ("sds", secrets),
    "ecds": ("ecds", extensions),
}
SUMMARIES = {
    "clusters": "Show clusters, the upstreams of a proxy.",
    "listeners": "Show listeners: ports, filter chain matches and destinations.",
    "routes": "Show routes: request matches and destinations.",
    "endpoints": "Show endpoints, the addresses of clusters.",
    "secrets": "Show certificates and root certificates with their validity.",
    "ecds": "Show filters that are delivered separately over ECDS.",
}
NOTHING = "None."
OWN_CERTIFICATE = (
    "None. Only the agent and Envoy have a workload's certificate; use --envoy http://127.0.0.1:15000 to query Envoy."
)
LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")
PROXY = "PROXY is POD.NAMESPACE or part of it."


class _SingularAliasGroup(click.Group):
    """A group that also accepts the singular of a command's name, as in istioctl."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, f"{cmd_name}s")


@click.group(cls=_SingularAliasGroup)
def proxy_config() -> None:
    """Show the configuration of a proxy: clusters, listeners, routes and more.

    The source is the control plane, or Envoy itself with --envoy or --file.
    """


def _add(name: str, short_type: str, table_module: ModuleType) -> None:
    @proxy_config.command(name, help=f"{SUMMARIES[name]}\n\n{PROXY}")
    @with_output
    @with_proxy
    def command(target: ProxyTarget) -> CommandResult:
        heading, resources = target.heading(), target.resources(short_type)
        nothing = OWN_CERTIFICATE if table_module is secrets and target.envoy is None else NOTHING
        return CommandResult(resources, [heading, *_table(resources, table_module, nothing)])


for _name, (_short_type, _table_module) in KINDS.items():
    _add(_name, _short_type, _table_module)


@proxy_config.command("all", help=f"Show all resources of a proxy.\n\n{PROXY}")
@with_output
@with_proxy
def everything(target: ProxyTarget) -> CommandResult:
    heading = target.heading()
    resources_by_kind = {name: target.resources(short_type) for name, (short_type, _) in KINDS.items()}
    return CommandResult(resources_by_kind, [heading, *_tables(resources_by_kind)])


@proxy_config.command(help="Show the bootstrap configuration of an Envoy.")
@with_output
@with_envoy
def bootstrap(envoy: EnvoyDump | None) -> CommandResult:
    if envoy is None:
        raise click.UsageError("the bootstrap is only available from Envoy: use --envoy URL or --file FILE")
    config = envoy.bootstrap()
    return CommandResult(config, _bootstrap(config))


@proxy_config.command()
@click.option(
    "--envoy", required=True, metavar="URL", help="admin address of the Envoy, such as http://127.0.0.1:15000"
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="[LOGGER:]LEVEL",
    help=f"level to set, for one logger or all: {', '.join(LEVELS)}",
)
def log(envoy: str, levels: tuple[str, ...]) -> None:
    """Show the log levels of an Envoy, or change them with --level."""
    new_levels = dict(_level(part) for text in levels for part in text.split(","))
    click.echo(set_levels(envoy, new_levels).rstrip())


def _level(text: str) -> tuple[str, str]:
    logger, _, level = text.rpartition(":")
    if level not in LEVELS:
        raise CommandError(f"--level {text!r}: invalid level {level!r}; valid levels are {', '.join(LEVELS)}")
    return logger, level


def _table(resources: list[dict[str, Any]], table_module: ModuleType, nothing: str) -> list[str | TextTable]:
    rows = table_module.rows(resources)
    return [TextTable(table_module.HEAD, rows) if rows else nothing]


def _tables(resources_by_kind: dict[str, list[dict[str, Any]]]) -> Iterator[str | TextTable]:
    for number, (name, resources) in enumerate(resources_by_kind.items()):
        yield from ["", name.upper()] if number else [name.upper()]
        yield from _table(resources, KINDS[name][1], NOTHING)


def _bootstrap(config: dict[str, Any]) -> Iterator[str | TextTable]:
    """Yield the node in a bootstrap as a table, and the names of the other fields."""
    node = config.get("node", {})
    facts = {"ID": node.get("id"), "CLUSTER": node.get("cluster"), **node.get("metadata", {})}
    yield TextTable(
        ("NODE", "VALUE"), [(name, value) for name, value in facts.items() if isinstance(value, str | int | float)]
    )
    yield ""
    yield f"Other fields: {', '.join(sorted(set(config) - {'node'}))}. Use -o yaml to show everything."
