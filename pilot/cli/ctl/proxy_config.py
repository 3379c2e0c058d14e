"""pilotctl proxy-config: what is a proxy to have?"""
from __future__ import annotations

import argparse
from types import ModuleType
from typing import Any

from pilot.cli.ctl.client import Client
from pilot.cli.ctl.output import add_output, as_json, table
from pilot.cli.ctl.tables import clusters, endpoints, listeners, routes

_KINDS: dict[str, tuple[str, ModuleType]] = {
    "clusters": ("cds", clusters),
    "listeners": ("lds", listeners),
    "routes": ("rds", routes),
    "endpoints": ("eds", endpoints),
}


def add_to(commands: Any) -> None:
    parser = commands.add_parser("proxy-config", aliases=["pc"], help="the clusters, listeners, routes or endpoints of a proxy")
    kinds = parser.add_subparsers(title="what to show", required=True, metavar="WHAT")
    for name, (short_type, rows) in _KINDS.items():
        about = rows.__doc__.partition(":")[2].strip() if rows.__doc__ else name
        kind = kinds.add_parser(name, aliases=[name.removesuffix("s")], help=about, description=rows.__doc__)
        kind.add_argument("proxy", metavar="PROXY", help="name of the proxy, <pod>.<namespace> or a part of it")
        add_output(kind)
        kind.set_defaults(run=run, short_type=short_type, table=rows)


def run(client: Client, arguments: argparse.Namespace) -> str:
    resources = client.get("config_dump", proxyID=arguments.proxy, types=arguments.short_type).get("configs", [])
    if arguments.output == "json":
        return as_json(resources)
    rows = arguments.table.rows(resources)
    return table(arguments.table.HEAD, rows) if rows else "None."
