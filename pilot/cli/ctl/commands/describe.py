"""pilotctl describe: summarise the configuration that applies to a workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.cluster import NAMESPACE_DEFAULT, default_namespace
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.commands.service_parts import reason_lines, service_parts
from pilot.cli.ctl.completions import complete_namespaces, complete_proxies
from pilot.cli.ctl.output import CommandResult, Part, TextTable, fold, name_of, wrap
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import ANY_NAMESPACE

SERVICE = ("svc", "service")
POD = ("po", "pod")


@click.command()
@click.argument("proxy", shell_complete=complete_proxies)
@click.argument("more", nargs=-1, metavar="")
@click.option(
    "-n",
    "--namespace",
    type=ANY_NAMESPACE,
    default="",
    help=f"namespace of PROXY, or of a service ({NAMESPACE_DEFAULT})",
    shell_complete=complete_namespaces,
)
@with_output
@with_client
def describe(client: Replicas, proxy: str, more: tuple[str, ...], namespace: str) -> CommandResult:
    """Describe a service or a workload: why requests to it fail, its routes, rules, policies and endpoints.

    PROXY is svc/NAME.NAMESPACE for a service, or POD.NAMESPACE or part of it for a workload. For
    other hosts, set the namespace: svc/HOST -n NAMESPACE. As with istioctl, "pod NAME" and "svc NAME" are accepted, and
    deployment/NAME.NAMESPACE for the first proxy of a workload.
    """
    if len(more) > 1 or (more and proxy not in (*SERVICE, *POD)):
        raise click.UsageError(f"describe takes one proxy, POD.NAMESPACE or part of it: pilotctl describe {more[0]}")
    kind, _, name = "/".join((proxy, *more)).partition("/")
    if kind in SERVICE and "://" in name:
        host = name.partition("://")[2].partition("/")[0].partition(":")[0]
        raise click.UsageError(f"{name!r} is a URL, not a service: use svc/{host}")
    if kind in SERVICE and name:
        host, place = _service_name(name, namespace)
        page = client.get("dashboard/service", host=host, namespace=place)
        return CommandResult(page, service_parts(page))
    proxy = name if kind in POD and name else proxy
    page = client.get("describe", proxyID=proxy, **({"namespace": namespace} if namespace else {}))
    return CommandResult(page, _parts(page))


def _service_name(text: str, namespace: str) -> tuple[str, str]:
    """Return the host or name, and the namespace, of a service: NAME, NAME.NAMESPACE, NAMESPACE/NAME or a host."""
    before, slash, after = text.partition("/")
    if slash and namespace in ("", before):
        return after, before
    name, _, rest = text.partition(".")
    place = rest.partition(".")[0]
    if place == rest and (not namespace or namespace == place):
        return name, place or default_namespace()
    return text, namespace or place


def _parts(page: dict[str, Any]) -> Iterator[Part]:
    yield f"{page['proxy']} ({page['type']}, {page['version'] or 'no version'})"
    yield from (fold(f"It {text}.", "", "  ") for text in (*page["rejections"], page.get("silence")) if text)
    yield from reason_lines(page)
    yield ""
    yield from _gateways(page["gateways"], page["labels"]) if "gateways" in page else _services(page["services"])
    yield ""
    if (sidecar := page.get("sidecar")) and sidecar["hidden"]:
        name, hidden, total = name_of(sidecar["sidecar"]), sidecar["hidden"], sidecar["hidden"] + sidecar["services"]
        yield from (f"Sidecar {name} hides {hidden} of {total} services from it.", "")
    rows = [(kind, name) for kind, names in page["policies"].items() for name in names]
    yield TextTable(("POLICY", "NAME"), rows) if rows else "No policy applies to it."


_WITHOUT_LABELS = "it has no labels, which are those of its Pod, or node.metadata.LABELS in its bootstrap"


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
    hosts = ", ".join(dict.fromkeys(f"svc/{s['host']}" for s in services[:3]))
    yield f"Its routes, rules, callers and endpoints: pilotctl describe {hosts}"


def _gateways(gateways: list[dict[str, Any]], labels: dict[str, str]) -> Iterator[str | TextTable]:
    if gateways:
        rows = [(g["gateway"], _joined(g["virtualServices"])) for g in gateways]
        yield wrap(TextTable(("GATEWAY", "VIRTUAL SERVICES"), rows), 1)
    else:
        text = ", ".join(f"{name}={value}" for name, value in labels.items() if not name.startswith("topology."))
        yield fold(f"No Gateway selects it: {f'its labels are {text}' if text else _WITHOUT_LABELS}.", "", "  ")


def _joined(names: list[str]) -> str:
    return ", ".join(names) or "-"
