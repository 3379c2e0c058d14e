"""pilotctl uninstall: remove an installation from a cluster."""

from __future__ import annotations

from typing import Any

import click

from deploy.operator.errors import SettingsError
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, confirm, with_cluster
from pilot.cli.ctl.commands.manifest import read_installation, read_settings
from pilot.cli.ctl.output import write
from pilot.install.installation_labels import owner_of
from pilot.install.tag_webhooks import list_injectors
from pilot.install.uninstallation import (
    Uninstallation,
    delete_objects,
    installed_revisions,
    uninstallation_of_everything,
    uninstallation_of_owner,
    uninstallation_of_revision,
)
from pilot.kube.object_client import ObjectClient


@click.command()
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="IstioOperator to uninstall")
@click.option("-s", "--set", "assignments", multiple=True, metavar="PATH=VALUE", help="setting of the IstioOperator")
@click.option(
    "-d",
    "--manifests",
    "package",
    default="",
    metavar="DIR",
    help="directory with charts and profiles to use instead of the built-in ones",
)
@click.option("-r", "--revision", default="", help="revision to uninstall")
@click.option("--purge", is_flag=True, help="delete all revisions, including CRDs and configuration")
@click.option("--force", is_flag=True, help="continue despite invalid settings in the file")
@click.option("--dry-run", is_flag=True, help="print the objects to delete without deleting them")
@click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not prompt")
@with_cluster
def uninstall(
    cluster: Cluster, revision: str, purge: bool, force: bool, dry_run: bool, yes: bool, **where: Any
) -> None:
    """Uninstall a revision, the installation that a file describes, or everything."""
    if not (revision or where["files"] or purge):
        raise CommandError("specify --revision NAME, -f FILE, or --purge for everything")
    uninstallation = cluster.run(lambda objects, _: _find(objects, revision, purge, force, where))
    if not uninstallation.objects:
        write("Nothing to uninstall.")
        return
    for warning in uninstallation.warnings:
        click.echo(f"! {warning}", err=True)
    if dry_run:
        for key in uninstallation.keys:
            write(f"would delete {key}")
        return
    if uninstallation.warnings:
        confirm(f"{len(uninstallation.objects)} objects will be deleted. Continue?", yes)
    for key in cluster.run(lambda objects, _: delete_objects(objects, uninstallation)):
        write(f"deleted {key}")
    write("✔ Uninstalled.")


async def _find(
    objects: ObjectClient, revision: str, purge: bool, force: bool, where: dict[str, Any]
) -> Uninstallation:
    if purge:
        return await uninstallation_of_everything(objects)
    if where["files"]:
        installation = read_installation(read_settings(revision=revision, **where), force)
        try:
            return await uninstallation_of_owner(objects, owner_of(installation.operator))
        except SettingsError as error:
            raise CommandError(str(error)) from error
    uninstallation = await uninstallation_of_revision(objects, revision)
    if not uninstallation.objects:
        revision_names = ", ".join(installed_revisions(await list_injectors(objects))) or "none"
        raise CommandError(f"revision {revision} is not installed; installed revisions: {revision_names}")
    return uninstallation
