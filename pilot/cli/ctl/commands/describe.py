"""pilotctl describe: summarise the configuration that applies to a workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.commands.service_parts import service_parts
from pilot.cli.ctl.completions import complete_namespaces, complete_proxies
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.replicas import Replicas

SERVICE = ("svc", "service")


@click.command()
@click.argument("proxy", shell_complete=complete_proxies)
@click.argument("more", nargs=-1, metavar="")
@click.option("-n", "--namespace", default="", help="namespace of PROXY", shell_complete=complete_namespaces)
@with_output
@with_client
def describe(client: Replicas, proxy: str, more: tuple[str, ...], namespace: str) -> CommandResult:
    """Describe a workload or a service: the routes and rules for traffic to it, and its policies.

    PROXY is POD.NAMESPACE or part of it, or svc/NAME.NAMESPACE for a service: its callers, endpoints and problems too.
    As with istioctl, "pod NAME" and "svc NAME" are also accepted.
    """
    if len(more) > 1 or (more and proxy not in (*SERVICE, "pod")):
        raise click.UsageError(f"describe takes one proxy, POD.NAMESPACE or part of it: pilotctl describe {more[0]}")
    kind, _, name = f"{proxy}/{more[0]}".partition("/") if more else proxy.rpartition("/")
    if kind in SERVICE:
        host, _, rest = name.partition(".")
        page = client.get("dashboard/service", host=host, namespace=namespace or rest or "default")
        return CommandResult(page, service_parts(page))
    page = client.get("describe", proxyID=name, **({"namespace": namespace} if namespace else {}))
    return CommandResult(page, _parts(page))


def _parts(page: dict[str, Any]) -> Iterator[str | TextTable]:
    yield f"{page['proxy']} ({page['type']}, {page['version'] or 'no version'})"
    yield ""
    yield from _gateways(page["gateways"]) if "gateways" in page else _services(page["services"])
    yield ""
    rows = [(kind, name) for kind, names in page["policies"].items() for name in names]
    yield TextTable(("POLICY", "NAME"), rows) if rows else "No policy applies to it."


def _services(services: list[dict[str, Any]]) -> Iterator[str | TextTable]:
    if not services:
        yield "No service selects it."
        return
    head = ("SERVICE", "PORT", "PROTOCOL", "TARGET", "MUTUAL TLS", "VIRTUAL SERVICES", "DESTINATION RULES", "SUBSETS")
    fields = ("virtualServices", "destinationRules", "subsets")
    rows = [
        (s["host"], s["port"], s["protocol"], s["targetPort"], s["mutualTls"], *(_joined(s[name]) for name in fields))
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
