"""pilotctl proxy-status: is every proxy up to date?"""
from __future__ import annotations

import argparse
from typing import Any

from pilot.cli.ctl.client import Client
from pilot.cli.ctl.output import add_output, as_json, table
from pilot.lib.xds_types import BY_SHORT_NAME, short_name

_TYPES = ("cds", "lds", "eds", "rds")


def add_to(commands: Any) -> None:
    parser = commands.add_parser("proxy-status", aliases=["ps"], help="what each proxy was sent, and whether it took it")
    parser.add_argument("-n", "--namespace", default="", help="only the proxies of a namespace")
    add_output(parser)
    parser.set_defaults(run=run)


def run(client: Client, arguments: argparse.Namespace) -> str:
    proxies = client.get("syncz", namespace=arguments.namespace)
    if arguments.output == "json":
        return as_json(proxies)
    if not proxies:
        return f"No proxy is connected to {client.address}."
    rows = [_row(proxy) for proxy in proxies]
    text = table(("NAME", "CLUSTER", "TYPE", *(name.upper() for name in _TYPES), "VERSION"), rows)
    return "\n".join([text, *(line for proxy in proxies for line in _errors(proxy))])


def _row(proxy: dict[str, Any]) -> list[str]:
    states = [state(proxy.get("resources", {}).get(BY_SHORT_NAME[name])) for name in _TYPES]
    return [proxy["proxy"], proxy.get("cluster_id", ""), proxy.get("proxy_type", ""), *states, proxy.get("istio_version", "")]


def state(resource: dict[str, Any] | None) -> str:
    """Returns the state of one type; "-" where the proxy does not watch it."""
    if resource is None:
        return "-"
    if resource.get("lastError"):
        return "ERROR"
    if not resource.get("sent"):
        return "NOT SENT"
    return "SYNCED" if resource["sent"] == resource.get("acked") else "STALE"


def _errors(proxy: dict[str, Any]) -> list[str]:
    resources = proxy.get("resources", {}).items()
    return [f"{proxy['proxy']} refuses its {short_name(url)}: {r['lastError']}" for url, r in sorted(resources) if r.get("lastError")]
