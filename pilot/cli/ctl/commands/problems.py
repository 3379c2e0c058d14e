"""pilotctl problems: list configuration problems."""

from __future__ import annotations

import click

from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.findings import Selection, with_selection
from pilot.cli.ctl.output import CommandResult
from pilot.cli.ctl.replicas import Replicas


@click.command()
@with_selection
@with_output
@with_client
def problems(client: Replicas, selection: Selection) -> CommandResult:
    """List configuration problems, the worst first."""
    namespace = selection.namespace
    findings = selection.apply(client.get("problemz", **({"namespace": namespace} if namespace is not None else {})))
    return selection.show(findings, "No problems.")
