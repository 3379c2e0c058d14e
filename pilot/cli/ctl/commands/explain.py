"""pilotctl explain: list the objects that a resource was built from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.output import CommandResult, TextTable, kind_of
from pilot.lib.xds_types import BY_SHORT_NAME


@click.command()
@click.argument("proxy")
@click.argument("resource")
@click.option(
    "-t",
    "--type",
    "short_type",
    default="",
    type=click.Choice(["", *BY_SHORT_NAME]),
    metavar="TYPE",
    help="resource type: cds, eds, lds, rds, sds, ecds, wds (workloads and services of ztunnels), wads (policies of "
    "ztunnels), nds (DNS names), pcds (proxy config), bds (bootstrap)",
)
@with_output
@with_client
def explain(client: PageClient, proxy: str, resource: str, short_type: str) -> CommandResult:
    """List the objects that a proxy's resource was built from.

    PROXY is POD.NAMESPACE or part of it. RESOURCE is a name from proxy-config; use --type if several types share the
    name.
    """
    page = client.get("explain", proxyID=proxy, resource=resource, type=short_type)
    return CommandResult(page, _parts(page))


def _parts(page: dict[str, Any]) -> Iterator[str | TextTable]:
    for number, part in enumerate(page["explanations"]):
        yield from [""] if number else []
        yield from _section(page, part)


def _section(page: dict[str, Any], part: dict[str, Any]) -> Iterator[str | TextTable]:
    rows = [
        (kind_of(o), o.get("namespace", ""), o["name"], " < ".join(map(_words, o["through"]))) for o in part["objects"]
    ]
    yield f"{page['resource']} ({part['type']}) of {page['proxy']} was built from"
    yield TextTable(("KIND", "NAMESPACE", "NAME", "THROUGH"), rows) if rows else "no configuration objects."
    for patch in part.get("patches", ()):
        yield f"and was patched by {patch['patch']} of EnvoyFilter {patch['namespace']}/{patch['name']}"
    if part["lists"]:
        yield f"and was looked up in: {', '.join(map(_words, part['lists']))}"
    if part.get("proxy"):
        yield f"proxy attributes come from: {', '.join(map(_name, part['proxy']))}"


def _name(o: dict[str, Any]) -> str:
    return f"{kind_of(o)} {o['namespace']}/{o['name']}" if o.get("namespace") else f"{kind_of(o)} {o['name']}"


def _words(derivation: str) -> str:
    return derivation.strip("_").replace("_", " ")
