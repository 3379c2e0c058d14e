"""pilotctl proxy-config: what is a proxy to have?"""
from __future__ import annotations

import argparse
from types import ModuleType
from typing import Any

from pilot.cli.ctl.client import Client, CommandError
from pilot.cli.ctl.envoy import fetch_secrets
from pilot.cli.ctl.output import add_output, as_json, table
from pilot.cli.ctl.tables import clusters, endpoints, listeners, routes, secrets

_KINDS: dict[str, tuple[str, ModuleType]] = {
    "clusters": ("cds", clusters),
    "listeners": ("lds", listeners),
    "routes": ("rds", routes),
    "endpoints": ("eds", endpoints),
    "secrets": ("sds", secrets),
}


OWN_CERTIFICATE = "None. The certificate of a workload is known to its agent and its Envoy alone: --envoy http://127.0.0.1:15000 asks that."


def add_to(commands: Any) -> None:
    parser = commands.add_parser("proxy-config", aliases=["pc"], help="the clusters, listeners, routes, endpoints or secrets of a proxy")
    kinds = parser.add_subparsers(title="what to show", required=True, metavar="WHAT")
    for name, (short_type, rows) in _KINDS.items():
        about = rows.__doc__.partition(":")[2].strip() if rows.__doc__ else name
        kind = kinds.add_parser(name, aliases=[name.removesuffix("s")], help=about, description=rows.__doc__)
        count = "?" if rows is secrets else None
        kind.add_argument("proxy", metavar="PROXY", nargs=count, help="name of the proxy, <pod>.<namespace> or a part of it")
        add_output(kind)
        kind.set_defaults(run=run, short_type=short_type, table=rows)
        if rows is secrets:
            kind.add_argument("--envoy", metavar="URL", help="ask this Envoy's admin port, which has the workload's own certificate too")
            kind.set_defaults(run=run_secrets)


def run(client: Client, arguments: argparse.Namespace) -> str:
    resources = client.get("config_dump", proxyID=arguments.proxy, types=arguments.short_type).get("configs", [])
    if arguments.output == "json":
        return as_json(resources)
    rows = arguments.table.rows(resources)
    return table(arguments.table.HEAD, rows) if rows else "None."


def run_secrets(client: Client, arguments: argparse.Namespace) -> str:
    """Returns the secrets of a proxy: those that the control plane has for it, or all that an Envoy has."""
    if not arguments.envoy:
        if not arguments.proxy:
            raise CommandError("say which proxy, or --envoy URL for what an Envoy has itself")
        text = run(client, arguments)
        return text if text != "None." else OWN_CERTIFICATE
    resources = fetch_secrets(arguments.envoy)
    if arguments.output == "json":
        return as_json(resources)
    return table(secrets.HEAD, secrets.rows(resources)) if resources else "None."
