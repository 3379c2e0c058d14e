"""pilotctl problems: what is wrong with the configuration?"""
from __future__ import annotations

import argparse
from typing import Any

from pilot.cli.ctl.client import Client
from pilot.cli.ctl.output import add_output, as_json, kind_of
from pilot.lib.text import one_line


def add_to(commands: Any) -> None:
    parser = commands.add_parser("problems", help="what is wrong with the configuration")
    parser.add_argument("-n", "--namespace", help="only objects of a namespace")
    add_output(parser)
    parser.set_defaults(run=run)


def run(client: Client, arguments: argparse.Namespace) -> str:
    found = client.get("problemz", **({"namespace": arguments.namespace} if arguments.namespace is not None else {}))
    if arguments.output == "json":
        return as_json(found)
    return "\n".join(one_line(_line(problem)) for problem in found) if found else "No problems."


def _line(problem: dict[str, Any]) -> str:
    place = problem.get("file", "") + (f":{problem['line']}" if problem.get("line") else "")
    name = "/".join(part for part in (problem.get("namespace"), problem.get("name")) if part)
    subject = " ".join(part for part in (kind_of(problem), name, problem.get("path")) if part)
    return ": ".join(part for part in (place, problem["severity"], subject, problem["message"]) if part) + f" [{problem['code']}]"
