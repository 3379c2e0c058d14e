"""pilotctl profile: what do the named sets of settings say?"""

from __future__ import annotations

from typing import Any

import click

from deploy.chart.chart import installation_folder
from deploy.operator.errors import SettingsError
from deploy.operator.inputs import merge_inputs, profile_names, read_profile
from deploy.operator.manifest import yaml_text
from deploy.operator.settings_tree import value_at
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.manifest import operator_options, read_settings
from pilot.cli.ctl.object_diff import text_difference
from pilot.cli.ctl.output import write


@click.group()
def profile() -> None:
    """The profiles: settings that an installation begins with."""


@profile.command("list")
@click.option(
    "-d", "--manifests", "package", default="", metavar="FOLDER", help="charts and profiles in the place of our own"
)
def list_profiles(package: str) -> None:
    """Print the names of all profiles."""
    try:
        write("\n".join(profile_names(installation_folder(package))))
    except SettingsError as error:
        raise CommandError(str(error)) from error


@profile.command()
@click.argument("name", required=False)
@operator_options
@click.option(
    "-p",
    "--config-path",
    "path",
    default="",
    metavar="PATH",
    help="only what stands at a path, such as components.pilot",
)
def dump(name: str | None, path: str, force: bool, **where: Any) -> None:
    """Print an IstioOperator with everything that its profile says."""
    if name and where["files"]:
        raise CommandError("say the name of a profile or a file, not both")
    assignments = (*(() if name is None else (f"profile={name}",)), *where.pop("assignments"))
    settings = read_settings(assignments=assignments, **where)
    try:
        merged = merge_inputs(settings, installation_folder(where["package"]))
    except SettingsError as error:
        raise CommandError(str(error)) from error
    found = value_at(merged, f"spec.{path}") if path else merged
    if found is None:
        raise CommandError(f"there is nothing at {path}")
    write(yaml_text(found).rstrip("\n"))


@profile.command()
@click.argument("one")
@click.argument("other")
@click.option(
    "-d", "--manifests", "package", default="", metavar="FOLDER", help="charts and profiles in the place of our own"
)
def diff(one: str, other: str, package: str) -> None:
    """Compare two profiles. The exit status is 1 where they differ."""
    folder = installation_folder(package)
    try:
        first, second = (read_profile(name, folder) for name in (one, other))
    except SettingsError as error:
        raise CommandError(str(error)) from error
    found = text_difference(yaml_text(first), yaml_text(second), f"{one} {other}")
    write("\n".join(found) or "The profiles are the same.")
    click.get_current_context().exit(1 if found else 0)
