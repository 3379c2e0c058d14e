"""pilotctl explain: from which objects was a resource made?"""
from __future__ import annotations

import argparse
from typing import Any

from pilot.cli.ctl.client import Client
from pilot.cli.ctl.output import add_output, as_json, kind_of, table
from pilot.lib.xds_types import BY_SHORT_NAME


def add_to(commands: Any) -> None:
    parser = commands.add_parser("explain", help="the objects that a resource of a proxy was made from")
    parser.add_argument("proxy", metavar="PROXY", help="name of the proxy, <pod>.<namespace> or a part of it")
    parser.add_argument("resource", metavar="RESOURCE", help="name of the resource as proxy-config shows it")
    parser.add_argument("-t", "--type", default="", choices=["", *BY_SHORT_NAME], metavar="TYPE", help="cds, eds, lds or rds, where names repeat")
    add_output(parser)
    parser.set_defaults(run=run)


def run(client: Client, arguments: argparse.Namespace) -> str:
    found = client.get("explain", proxyID=arguments.proxy, resource=arguments.resource, type=arguments.type)
    return as_json(found) if arguments.output == "json" else "\n\n".join(_section(found, part) for part in found["explanations"])


def _section(found: dict[str, Any], part: dict[str, Any]) -> str:
    rows = [(kind_of(o), o.get("namespace", ""), o["name"], " < ".join(map(_words, o["through"]))) for o in part["objects"]]
    lines = [f"{found['resource']} ({part['type']}) of {found['proxy']} is made from"]
    lines.append(table(("KIND", "NAMESPACE", "NAME", "THROUGH"), rows) if rows else "nothing that anybody configured.")
    if part["lists"]:
        lines.append(f"and was looked up in: {', '.join(map(_words, part['lists']))}")
    if part.get("proxy"):
        lines.append(f"for a proxy that is what it is by: {', '.join(map(_name, part['proxy']))}")
    return "\n".join(lines)


def _name(o: dict[str, Any]) -> str:
    return f"{kind_of(o)} {o['namespace']}/{o['name']}" if o.get("namespace") else f"{kind_of(o)} {o['name']}"


def _words(derivation: str) -> str:
    return derivation.strip("_").replace("_", " ")
