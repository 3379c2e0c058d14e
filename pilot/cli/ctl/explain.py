"""pilotctl explain: from which objects was a resource made?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.command import answers, asks
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
    help=", ".join(BY_SHORT_NAME),
)
@answers
@asks
def explain(client: PageClient, proxy: str, resource: str, short_type: str) -> CommandResult:
    """The objects that a resource of a proxy was made from.

    PROXY is its name, POD.NAMESPACE or a part of it; RESOURCE a name as proxy-config shows it, and --type is for names that repeat.
    """
    found = client.get("explain", proxyID=proxy, resource=resource, type=short_type)
    return CommandResult(found, _parts(found))


def _parts(found: dict[str, Any]) -> Iterator[str | TextTable]:
    for number, part in enumerate(found["explanations"]):
        yield from [""] if number else []
        yield from _section(found, part)


def _section(found: dict[str, Any], part: dict[str, Any]) -> Iterator[str | TextTable]:
    rows = [
        (kind_of(o), o.get("namespace", ""), o["name"], " < ".join(map(_words, o["through"]))) for o in part["objects"]
    ]
    yield f"{found['resource']} ({part['type']}) of {found['proxy']} is made from"
    yield TextTable(("KIND", "NAMESPACE", "NAME", "THROUGH"), rows) if rows else "nothing that anybody configured."
    for patch in part.get("patches", ()):
        yield f"and was patched by {patch['patch']} of EnvoyFilter {patch['namespace']}/{patch['name']}"
    if part["lists"]:
        yield f"and was looked up in: {', '.join(map(_words, part['lists']))}"
    if part.get("proxy"):
        yield f"for a proxy that is what it is by: {', '.join(map(_name, part['proxy']))}"


def _name(o: dict[str, Any]) -> str:
    return f"{kind_of(o)} {o['namespace']}/{o['name']}" if o.get("namespace") else f"{kind_of(o)} {o['name']}"


def _words(derivation: str) -> str:
    return derivation.strip("_").replace("_", " ")
