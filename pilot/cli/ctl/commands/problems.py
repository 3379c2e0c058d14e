"""pilotctl problems: list configuration problems."""

from __future__ import annotations

from typing import Any

import click

from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.output import CommandResult, kind_of
from pilot.lib.text import one_line


@click.command()
@click.option("-n", "--namespace", help="only objects in this namespace")
@with_output
@with_client
def problems(client: PageClient, namespace: str | None) -> CommandResult:
    """List configuration problems by object."""
    reports = client.get("problemz", **({"namespace": namespace} if namespace is not None else {}))
    return CommandResult(reports, [one_line(_line(problem)) for problem in reports] or ["No problems."])


def _line(problem: dict[str, Any]) -> str:
    place = problem.get("file", "") + (f":{problem['line']}" if problem.get("line") else "")
    name = "/".join(part for part in (problem.get("namespace"), problem.get("name")) if part)
    subject = " ".join(part for part in (kind_of(problem), name, problem.get("path")) if part)
    return (
        ": ".join(part for part in (place, problem["severity"], subject, problem["message"]) if part)
        + f" [{problem['code']}]"
    )
