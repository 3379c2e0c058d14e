"""pilotctl proxy-config: what is a proxy to have, or what has its Envoy?"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import answers
from pilot.cli.ctl.envoy import EnvoyDump, set_levels
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.proxy import AskedProxy, of_envoy, of_proxy
from pilot.cli.ctl.tables import clusters, endpoints, extensions, listeners, routes, secrets

# What is shown: name, type of resources, the module with its table
KINDS: dict[str, tuple[str, ModuleType]] = {
    "clusters": ("cds", clusters),
    "listeners": ("lds", listeners),
    "routes": ("rds", routes),
    "endpoints": ("eds", endpoints),
    "secrets": ("sds", secrets),
    "ecds": ("ecds", extensions),
}
NOTHING = "None."
OWN_CERTIFICATE = "None. The certificate of a workload is known to its agent and its Envoy alone: --envoy http://127.0.0.1:15000 asks that."
LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")
PROXY = "PROXY is its name, POD.NAMESPACE or a part of it."


class _ByEitherNumber(click.Group):
    """A group whose commands have their names in the singular too, as istioctl has them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, f"{cmd_name}s")


@click.group(cls=_ByEitherNumber)
def proxy_config() -> None:
    """What a proxy has: clusters, listeners, routes and more.

    It is what the control plane has for it, or with --envoy or --file what an Envoy says that it has.
    """


def _add(name: str, short_type: str, shown: ModuleType) -> None:
    @proxy_config.command(name, help=f"{shown.__doc__}\n\n{PROXY}", short_help=_about(shown))
    @answers
    @of_proxy
    def command(asked: AskedProxy) -> CommandResult:
        resources = asked.resources(short_type)
        return CommandResult(
            resources,
            _table(resources, shown, OWN_CERTIFICATE if shown is secrets and asked.envoy is None else NOTHING),
        )


def _about(shown: ModuleType) -> str:
    """Returns what a table is of: the title of its module."""
    return (shown.__doc__ or "").partition(":")[2].strip().capitalize()


for _name, (_short_type, _shown) in KINDS.items():
    _add(_name, _short_type, _shown)


@proxy_config.command("all", help=f"Everything that a proxy has, table after table.\n\n{PROXY}")
@answers
@of_proxy
def everything(asked: AskedProxy) -> CommandResult:
    found = {name: asked.resources(short_type) for name, (short_type, _) in KINDS.items()}
    return CommandResult(found, _tables(found))


@proxy_config.command(help="The configuration that an Envoy started with.")
@answers
@of_envoy
def bootstrap(envoy: EnvoyDump | None) -> CommandResult:
    if envoy is None:
        raise click.UsageError("only an Envoy knows its bootstrap: --envoy URL or --file FILE")
    found = envoy.bootstrap()
    return CommandResult(found, _bootstrap(found))


@proxy_config.command()
@click.option("--envoy", required=True, metavar="URL", help="admin port of the Envoy, such as http://127.0.0.1:15000")
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="[LOGGER:]LEVEL",
    help=f"level to set, of one logger or of all: {', '.join(LEVELS)}",
)
def log(envoy: str, levels: tuple[str, ...]) -> None:
    """How much an Envoy logs; --level changes it."""
    asked = dict(_level(part) for text in levels for part in text.split(","))
    click.echo(set_levels(envoy, asked).rstrip())


def _level(text: str) -> tuple[str, str]:
    logger, _, level = text.rpartition(":")
    if level not in LEVELS:
        raise CommandError(f"--level {text!r}: {level!r} is no level; they are {', '.join(LEVELS)}")
    return logger, level


def _table(resources: list[dict[str, Any]], shown: ModuleType, nothing: str) -> list[str | TextTable]:
    rows = shown.rows(resources)
    return [TextTable(shown.HEAD, rows) if rows else nothing]


def _tables(found: dict[str, list[dict[str, Any]]]) -> Iterator[str | TextTable]:
    for number, (name, resources) in enumerate(found.items()):
        yield from ["", name.upper()] if number else [name.upper()]
        yield from _table(resources, KINDS[name][1], NOTHING)


def _bootstrap(found: dict[str, Any]) -> Iterator[str | TextTable]:
    """Yields the node of a bootstrap as a table, and what else there is by name; -o yaml has all of it."""
    node = found.get("node", {})
    facts = {"ID": node.get("id"), "CLUSTER": node.get("cluster"), **node.get("metadata", {})}
    yield TextTable(
        ("NODE", "VALUE"), [(name, value) for name, value in facts.items() if isinstance(value, str | int | float)]
    )
    yield ""
    yield f"It also has {', '.join(sorted(set(found) - {'node'}))}: -o yaml shows all of it."
