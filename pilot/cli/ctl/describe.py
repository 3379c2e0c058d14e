"""pilotctl describe: what applies to a workload?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.command import answers, asks
from pilot.cli.ctl.output import CommandResult, TextTable


@click.command()
@click.argument("proxy")
@answers
@asks
def describe(client: PageClient, proxy: str) -> CommandResult:
    """What a workload serves, by which routes and rules it is reached, and which policies it has.

    PROXY is its name, POD.NAMESPACE or a part of it.
    """
    found = client.get("describe", proxyID=proxy)
    return CommandResult(found, _parts(found))


def _parts(found: dict[str, Any]) -> Iterator[str | TextTable]:
    yield f"{found['proxy']} ({found['type']}, {found['version'] or 'no version'})"
    yield ""
    yield from _gateways(found["gateways"]) if "gateways" in found else _services(found["services"])
    yield ""
    rows = [(kind, name) for kind, names in found["policies"].items() for name in names]
    yield TextTable(("POLICY", "NAME"), rows) if rows else "No policy is for it."


def _services(services: list[dict[str, Any]]) -> Iterator[str | TextTable]:
    if not services:
        yield "No service points at it."
        return
    head = ("SERVICE", "PORT", "PROTOCOL", "TARGET", "MUTUAL TLS", "VIRTUAL SERVICES", "DESTINATION RULES", "SUBSETS")
    listed = ("virtualServices", "destinationRules", "subsets")
    rows = [
        (s["host"], s["port"], s["protocol"], s["targetPort"], s["mutualTls"], *(_joined(s[name]) for name in listed))
        for s in services
    ]
    yield TextTable(head, rows)


def _gateways(gateways: list[dict[str, Any]]) -> Iterator[str | TextTable]:
    if gateways:
        yield TextTable(
            ("GATEWAY", "VIRTUAL SERVICES"), [(g["gateway"], _joined(g["virtualServices"])) for g in gateways]
        )
    else:
        yield "No Gateway selects it."


def _joined(names: list[str]) -> str:
    return ", ".join(names) or "-"
