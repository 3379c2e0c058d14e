"""pilotctl status: what becomes of Gateways, routes and Ingresses?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.command import answers, asks
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.lib.text import one_line

_SHOWN = ("Accepted", "Programmed", "ResolvedRefs")
_BAD_IF_SO = ("Conflicted",)
_HEAD = ("OBJECT", "PART", "ACCEPTED", "PROGRAMMED", "RESOLVED", "WHAT IS WRONG")


@click.command()
@click.option("-n", "--namespace", help="only objects of a namespace")
@click.option("-k", "--kind", default="", help="only objects of a kind, such as httproute")
@answers
@asks
def status(client: PageClient, namespace: str | None, kind: str) -> CommandResult:
    """What becomes of objects of the Gateway API and of Ingresses: the conditions of their status."""
    asked = {"namespace": namespace, "kind": kind or None}
    found = client.get("statusz", **{name: value for name, value in asked.items() if value is not None})
    rows = [(_name(one) if not n else "", *row) for one in found for n, row in enumerate(_rows(one["status"]))]
    return CommandResult(found, [TextTable(_HEAD, rows)] if rows else ["There are none."])


def _name(one: dict[str, Any]) -> str:
    return f"{one['kind']} " + "/".join(part for part in (one["namespace"], one["name"]) if part)


def _rows(said: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields a row for each list of conditions."""
    if "conditions" in said:
        addresses = ", ".join(address["value"] for address in said.get("addresses", ()))
        yield (addresses, *_told(said["conditions"]))
    for listener in said.get("listeners", ()):
        yield (f"listener {listener['name']}, {listener['attachedRoutes']} routes", *_told(listener["conditions"]))
    for field, ref in (("parents", "parentRef"), ("ancestors", "ancestorRef")):
        for entry in said.get(field, ()):
            yield (f"{entry[ref]['kind']} {_target(entry[ref])}", *_told(entry["conditions"]))
    if "loadBalancer" in said:
        yield (
            ", ".join(next(iter(one.values())) for one in said["loadBalancer"]["ingress"]) or "no address",
            "",
            "",
            "",
            "",
        )


def _target(ref: dict[str, Any]) -> str:
    name = "/".join(part for part in (ref.get("namespace"), ref["name"]) if part)
    section = ref.get("sectionName") or ref.get("port")
    return f"{name}:{section}" if section else name


def _told(conditions: Iterable[dict[str, str]]) -> tuple[str, ...]:
    listed = list(conditions)
    by_type = {c["type"]: c["status"] for c in listed}
    wrong = [
        c
        for c in listed
        if c["status"] == ("True" if c["type"] in _BAD_IF_SO else "False") and c["type"] in (*_SHOWN, *_BAD_IF_SO)
    ]
    said = dict.fromkeys(f"{c['reason']}: {c['message']}" for c in wrong)
    return (*(by_type.get(type_, "") for type_ in _SHOWN), one_line("; ".join(said)))
