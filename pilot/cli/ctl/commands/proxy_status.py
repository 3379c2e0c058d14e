"""pilotctl proxy-status: show whether proxies are in sync, and compare the configuration of one with its Envoy's."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.envoy import EnvoyDump
from pilot.cli.ctl.output import CommandResult, TextTable, watch
from pilot.cli.ctl.proxy import ProxyTarget, describe_proxy, find_status, with_envoy, wrong_envoy
from pilot.lib.xds_types import BY_SHORT_NAME, short_name

_TYPES = ("cds", "lds", "eds", "rds")
_COMPARED = {"Clusters": "cds", "Listeners": "lds", "Routes": "rds"}
SECONDS = 1.0
_CONTEXT_LINES = 7  # context lines around a difference


@click.command()
@click.argument("proxy", required=False)
@click.option("-n", "--namespace", default="", help="only proxies in this namespace")
@click.option("-w", "--watch", "repeat", is_flag=True, help="refresh every second until Ctrl-C")
@with_output
@with_envoy
@with_client
def proxy_status(
    client: PageClient, proxy: str | None, namespace: str, repeat: bool, envoy: EnvoyDump | None
) -> CommandResult:
    """Show whether each proxy has acknowledged its configuration.

    With PROXY (POD.NAMESPACE or part of it), show the state of each resource type. With PROXY and --envoy or --file,
    compare the control plane's configuration with Envoy's.
    """
    if envoy is not None:
        if not proxy:
            raise click.UsageError("specify the PROXY to compare the Envoy with")
        return _comparison(client, proxy, envoy)
    if repeat:
        watch(lambda: _status(client, proxy, namespace).parts, SECONDS)
    return _status(client, proxy, namespace)


def _status(client: PageClient, proxy: str | None, namespace: str) -> CommandResult:
    if proxy:
        statuses = client.get("syncz", proxyID=proxy, namespace=namespace)
        if not statuses:
            raise CommandError(f"{find_status(client, proxy)['proxy']} is not in the namespace {namespace!r}")
        return CommandResult(statuses, _details(statuses))
    proxies = client.get("syncz", namespace=namespace)
    return CommandResult(proxies, _parts(proxies) if proxies else [_nothing(client, namespace)])


def _nothing(client: PageClient, namespace: str) -> str:
    return f"No proxy{f' in the namespace {namespace!r}' if namespace else ''} is connected to {client.address}."


def _parts(proxies: list[dict[str, Any]]) -> Iterator[str | TextTable]:
    yield TextTable(
        ("NAME", "CLUSTER", "TYPE", *(name.upper() for name in _TYPES), "VERSION"), [_row(proxy) for proxy in proxies]
    )
    for proxy in proxies:
        yield from _errors(proxy)


def _row(proxy: dict[str, Any]) -> list[str]:
    states = [state(proxy.get("resources", {}).get(BY_SHORT_NAME[name])) for name in _TYPES]
    return [
        proxy["proxy"],
        proxy.get("cluster_id", ""),
        proxy.get("proxy_type", ""),
        *states,
        proxy.get("istio_version", ""),
    ]


def state(resource: dict[str, Any] | None) -> str:
    """Return the sync state of a resource type, or "-" if the proxy does not subscribe to it."""
    if resource is None:
        return "-"
    if resource.get("lastError"):
        return "ERROR"
    if not resource.get("sent"):
        return "NOT SENT"
    return "SYNCED" if resource["sent"] == resource.get("acked") else "STALE"


def _details(proxies: Iterable[dict[str, Any]]) -> Iterator[str | TextTable]:
    for number, proxy in enumerate(proxies):
        yield from [""] if number else []
        kind, istio_version = proxy.get("proxy_type", ""), proxy.get("istio_version") or "no version"
        yield f"{proxy['proxy']} ({kind}, {istio_version}) in {proxy.get('cluster_id', '')}"
        resources = sorted(proxy.get("resources", {}).items())
        rows = [
            (short_name(url).upper(), state(r), r.get("sent") or "-", r.get("acked") or "-", r.get("sentTime") or "-")
            for url, r in resources
        ]
        yield TextTable(("TYPE", "STATE", "SENT", "ACKNOWLEDGED", "TIME"), rows)
        yield from _errors(proxy)


def _errors(proxy: dict[str, Any]) -> list[str]:
    resources = proxy.get("resources", {}).items()
    return [
        f"{proxy['proxy']} rejected its {short_name(url)}: {r['lastError']}"
        for url, r in sorted(resources)
        if r.get("lastError")
    ]


def _comparison(client: PageClient, proxy: str, envoy: EnvoyDump) -> CommandResult:
    """Return the difference between the control plane's configuration of a proxy and Envoy's, as a unified diff per
    type."""
    status = find_status(client, proxy)
    if status["proxy"] != envoy.proxy_id():
        raise wrong_envoy(envoy.proxy_id(), status["proxy"])
    theirs = envoy.node().get("metadata", {}).get("CLUSTER_ID")
    if theirs and status.get("cluster_id", theirs) != theirs:
        raise CommandError(
            f"this Envoy is in cluster {theirs}, and {status['proxy']} is in cluster {status['cluster_id']}"
        )
    target = ProxyTarget(client, proxy, None)
    diffs = {
        title: _difference(title, target.resources(name), envoy.resources(name, dynamic=True))
        for title, name in _COMPARED.items()
    }
    heading = [describe_proxy(status)]
    return CommandResult(
        {title: "\n".join(lines) for title, lines in diffs.items()}, itertools.chain(heading, _diff_lines(diffs))
    )


def _diff_lines(diffs: dict[str, list[str]]) -> Iterator[str]:
    for title, lines in diffs.items():
        yield f"{title} Don't Match" if lines else f"{title} Match"
        yield from lines


def _difference(title: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[str]:
    return list(
        difflib.unified_diff(
            _lines(ours), _lines(theirs), f"Istiod {title}", f"Envoy {title}", lineterm="", n=_CONTEXT_LINES
        )
    )


def _lines(resources: list[dict[str, Any]]) -> list[str]:
    plain = [
        _comparable({name: value for name, value in resource.items() if name != "@type"}) for resource in resources
    ]
    return json.dumps(
        sorted(plain, key=lambda r: str(r.get("name"))), indent=2, sort_keys=True, ensure_ascii=False
    ).splitlines()


def _comparable(value: Any) -> Any:
    """Return JSON data with integral floats converted to integers."""
    if isinstance(value, dict):
        return {name: _comparable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_comparable(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
