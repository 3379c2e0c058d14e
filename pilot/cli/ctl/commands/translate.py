"""pilotctl translate: convert an IstioOperator to Helm values."""

from __future__ import annotations

from typing import Any

import click

from deploy.operator.errors import SettingsError
from deploy.operator.helm_releases import helm_releases
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.commands.manifest import operator_options, read_settings
from pilot.cli.ctl.output import write


@click.command()
@operator_options
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    help="write one values file per chart to this directory instead of printing the values",
)
def translate(folder: str | None, force: bool, **where: Any) -> None:
    """Convert an IstioOperator to Helm values.

    Most k8s settings of an IstioOperator, including overlays, patch rendered objects, so Helm values cannot express
    them. Such settings are reported, and require a post-renderer.
    """
    try:
        releases = helm_releases(read_settings(**where), lambda text: click.echo(f"! {text}", err=True), force)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    if folder is not None:
        try:
            for release in releases:
                release.write(folder)
        except OSError as error:
            raise CommandError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error
    write("\n".join(line for release in releases for line in release.lines(folder)))
