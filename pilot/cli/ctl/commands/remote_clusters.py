"""pilotctl remote-clusters: list the clusters that each replica of the control plane is connected to."""

from __future__ import annotations

import click

from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.replicas import Replicas


@click.command()
@with_output
@with_client
def remote_clusters(client: Replicas) -> CommandResult:
    """List the clusters that each replica of the control plane is connected to."""
    clusters = [
        {**cluster, "istiod": answer.replica.name} for answer in client.each("clusterz") for cluster in answer.value
    ]
    rows = [(one["id"], one["secretName"] or "-", one["syncStatus"], one["istiod"]) for one in clusters]
    return CommandResult(clusters, [TextTable(("NAME", "SECRET", "STATUS", "ISTIOD"), rows)])
