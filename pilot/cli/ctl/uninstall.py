"""pilotctl uninstall: take an installation out of a cluster."""

from __future__ import annotations

from typing import Any

import click

from deploy.operator.errors import SettingsError
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, confirm, of_cluster
from pilot.cli.ctl.manifest import read_installation, read_settings
from pilot.cli.ctl.output import write
from pilot.install.installation_labels import owner_of
from pilot.install.tag_webhooks import list_injectors
from pilot.install.uninstallation import (
    Uninstallation,
    delete_objects,
    uninstallation_of_everything,
    uninstallation_of_owner,
    uninstallation_of_revision,
    installed_revisions,
)
from pilot.kube.object_client import ObjectClient


@click.command()
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="the IstioOperator whose objects go")
@click.option("-s", "--set", "assignments", multiple=True, metavar="PATH=VALUE", help="a setting of it")
@click.option(
    "-d", "--manifests", "package", default="", metavar="FOLDER", help="charts and profiles in the place of our own"
)
@click.option("-r", "--revision", default="", help="the revision that goes")
@click.option("--purge", is_flag=True, help="everything of every revision goes, definitions and configuration too")
@click.option("--force", is_flag=True, help="go on in spite of wrong settings in the file")
@click.option("--dry-run", is_flag=True, help="say what would go, and change nothing")
@click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not ask")
@of_cluster
def uninstall(
    cluster: Cluster, revision: str, purge: bool, force: bool, dry_run: bool, yes: bool, **where: Any
) -> None:
    """Take a revision, what a file has installed, or everything out of a cluster."""
    if not (revision or where["files"] or purge):
        raise CommandError("say what is to go: --revision NAME, -f FILE, or --purge for everything")
    leaving = cluster.ask(lambda objects, _: _find(objects, revision, purge, force, where))
    if not leaving.objects:
        write("There is nothing to take out.")
        return
    for warning in leaving.warnings:
        click.echo(f"! {warning}", err=True)
    if dry_run:
        for key in leaving.keys:
            write(f"would delete {key}")
        return
    if leaving.warnings:
        confirm(f"{len(leaving.objects)} objects will be deleted. Go on?", yes)
    for key in cluster.ask(lambda objects, _: delete_objects(objects, leaving)):
        write(f"deleted {key}")
    write("✔ Uninstalled.")


async def _find(objects: ObjectClient, revision: str, purge: bool, force: bool, where: dict[str, Any]) -> Uninstallation:
    if purge:
        return await uninstallation_of_everything(objects)
    if where["files"]:
        installation = read_installation(read_settings(revision=revision, **where), force)
        try:
            return await uninstallation_of_owner(objects, owner_of(installation.operator))
        except SettingsError as error:
            raise CommandError(str(error)) from error
    leaving = await uninstallation_of_revision(objects, revision)
    if not leaving.objects:
        known = ", ".join(installed_revisions(await list_injectors(objects))) or "none"
        raise CommandError(f"there is no revision {revision}; there are: {known}")
    return leaving
