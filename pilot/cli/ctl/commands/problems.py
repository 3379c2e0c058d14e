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
    """List problems of objects and of proxies, the worst first.

    These are mistakes in the configuration, objects from which proxies reject resources, and proxies that are not
    responding. With --namespace, they are those of the objects and the proxies in it, and of objects elsewhere from
    which its proxies reject resources.
    """
    namespace = selection.namespace
    query = {"namespace": namespace} if namespace is not None else {}
    findings = selection.apply(client.get("problemz", proxies="true", **query))
    within = f" in the namespace {namespace}; pilotctl problems lists those of all" if namespace else ""
    if not findings:
        within += client.describe_missing_namespace(namespace)
    return selection.show(findings, f"No problems{within}.")
