"""pilotctl profile: list, print and compare installation profiles."""

from __future__ import annotations

from typing import Any

import click

from deploy.chart.chart import installation_folder
from deploy.operator.errors import SettingsError
from deploy.operator.inputs import merge_inputs, profile_names, read_profile
from deploy.operator.manifest import yaml_text
from deploy.operator.settings_tree import value_at
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import AliasGroup
from pilot.cli.ctl.commands.manifest import operator_options, read_settings
from pilot.cli.ctl.object_diff import text_difference
from pilot.cli.ctl.output import write
from pilot.lib.suggestion import did_you_mean


@click.group(cls=AliasGroup)
def profile() -> None:
    """Inspect installation profiles, which are named sets of default settings."""


@profile.command("list")
@click.option(
    "-d",
    "--manifests",
    "package",
    default="",
    metavar="DIR",
    help="directory with charts and profiles to use instead of the built-in ones",
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
    help="only the settings below this path, such as components.pilot",
)
def dump(name: str | None, path: str, force: bool, **where: Any) -> None:
    """Print an IstioOperator merged with its profile."""
    if name and where["files"]:
        raise CommandError("specify a profile name or a file, not both")
    assignments = (*(() if name is None else (f"profile={name}",)), *where.pop("assignments"))
    settings = read_settings(assignments=assignments, **where)
    try:
        merged = merge_inputs(settings.plain, installation_folder(where["package"]), origin=settings.origin)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    value = value_at(merged, f"spec.{path}") if path else merged
    if value is None:
        outer, _, name = f"spec.{path}".rpartition(".")
        parent = value_at(merged, outer)
        suggestion = did_you_mean(name, parent) if isinstance(parent, dict) else ""
        raise CommandError(f"the path {path} has no value{suggestion}")
    write(yaml_text(value).rstrip("\n"))


@profile.command()
@click.argument("one", metavar="PROFILE1")
@click.argument("other", metavar="PROFILE2")
@click.option(
    "-d",
    "--manifests",
    "package",
    default="",
    metavar="DIR",
    help="directory with charts and profiles to use instead of the built-in ones",
)
def diff(one: str, other: str, package: str) -> None:
    """Compare two profiles. The exit status is 1 if they differ."""
    folder = installation_folder(package)
    try:
        first, second = (read_profile(name, folder) for name in (one, other))
    except SettingsError as error:
        raise CommandError(str(error)) from error
    lines = text_difference(yaml_text(first), yaml_text(second), f"profile {one}", f"profile {other}")
    write("\n".join(lines) or "The profiles are identical.")
    click.get_current_context().exit(1 if lines else 0)
