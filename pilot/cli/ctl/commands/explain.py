"""pilotctl explain: list the objects that a resource was built from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.client import UnknownProxyError
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.completions import complete_namespaces, complete_proxies, complete_resources
from pilot.cli.ctl.output import CommandResult, TextTable, kind_of, name_of, place_of
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.lib.xds_types import BY_SHORT_NAME


@click.command()
@click.argument("proxy", shell_complete=complete_proxies)
@click.argument("resource", shell_complete=complete_resources)
@click.option(
    "-t",
    "--type",
    "short_type",
    type=click.Choice(tuple(BY_SHORT_NAME)),
    metavar="TYPE",
    help="resource type: cds, eds, lds, rds, sds, ecds, wds (workloads and services of ztunnels), wads (policies of "
    "ztunnels), nds (DNS names), pcds (proxy config), bds (bootstrap)",
)
@click.option(
    "-n", "--namespace", type=ANY_NAMESPACE, default="", help="namespace of PROXY", shell_complete=complete_namespaces
)
@click.option("-v", "--verbose", is_flag=True, help="also show how the objects affect the resource")
@with_output
@with_client
def explain(
    client: Replicas, proxy: str, resource: str, namespace: str, short_type: str | None, verbose: bool
) -> CommandResult:
    """List the objects that a proxy's resource was built from.

    PROXY is POD.NAMESPACE or part of it. RESOURCE is a NAME from proxy-config; use --type if several types share the
    name.
    """
    if "|" in proxy:
        raise _swapped(proxy, resource)
    query = {"proxyID": proxy, "resource": resource, "type": short_type or ""}
    try:
        page = client.get("explain", **query, **({"namespace": namespace} if namespace else {}))
    except UnknownProxyError:
        if _is_connected(client, resource):
            raise _swapped(proxy, resource) from None
        raise
    return CommandResult(page, _parts(page, verbose))


def _is_connected(client: Replicas, name: str) -> bool:
    """Return whether a name selects a connected proxy."""
    try:
        return bool(client.get("syncz", proxyID=name))
    except UnknownProxyError:
        return False


def _swapped(resource: str, proxy: str) -> click.UsageError:
    """Return the error for a resource that stands before the proxy."""
    return click.UsageError(f"PROXY comes first: use {shlex.join(['pilotctl', 'explain', proxy, resource])}")


def _parts(page: dict[str, Any], verbose: bool) -> Iterator[str | TextTable]:
    for number, part in enumerate(page["explanations"]):
        yield from [""] if number else []
        yield f"{page['resource']} ({part['type']}) of {page['proxy']} was built from"
        yield from _section(part, verbose)


def _section(part: dict[str, Any], verbose: bool) -> Iterator[str | TextTable]:
    rows = [(kind_of(o), name_of(o), place_of(o) or "-", *([_via(o)] if verbose else [])) for o in part["objects"]]
    head = ("KIND", "NAME", "FILE:LINE", *(["THROUGH"] if verbose else []))
    yield TextTable(head, rows) if rows else "no configuration objects."
    for patch in part.get("patches", ()):
        yield f"and was patched by {patch['patch']} of EnvoyFilter {patch['namespace']}/{patch['name']}"
    if verbose and part.get("searched"):
        yield f"and was looked up in: {', '.join(part['searched'])}"
    if verbose and part.get("proxy"):
        yield f"proxy attributes come from: {', '.join(f'{kind_of(o)} {name_of(o)}' for o in part['proxy'])}"


def _via(o: dict[str, Any]) -> str:
    """Return the topics between the resource and the object, from the resource to the object."""
    return " < ".join(o.get("via", ())) or "-"
