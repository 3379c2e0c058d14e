"""pilotctl manifest: what would an installation consist of?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deploy.operator.errors import SettingsError
from deploy.operator.inputs import user_settings
from deploy.operator.manifest import Installation, manifest_text, render_installation
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, of_cluster
from pilot.cli.ctl.object_diff import differences, objects_of
from pilot.cli.ctl.output import write

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Function = TypeVar("Function", bound=Callable[..., Any])


def operator_options(function: Function) -> Function:
    """Gives a command the options that say what is to be installed, as `files`, `assignments`, `package`, `revision` and `force`."""
    options = (
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            metavar="FILE",
            help="an IstioOperator, laid over the ones before; - for stdin",
        ),
        click.option(
            "-s",
            "--set",
            "assignments",
            multiple=True,
            metavar="PATH=VALUE",
            help="a setting, such as values.pilot.autoscaleMin=2",
        ),
        click.option(
            "-d",
            "--manifests",
            "package",
            default="",
            metavar="FOLDER",
            help="charts and profiles in the place of our own",
        ),
        click.option("-r", "--revision", default="", help="name of this control plane beside others"),
        click.option("--force", is_flag=True, help="go on in spite of wrong settings, where that is possible"),
    )
    for option in reversed(options):
        function = option(function)
    return function


def read_settings(files: tuple[str, ...], assignments: tuple[str, ...], package: str, revision: str) -> dict[str, Any]:
    """Returns the IstioOperator that flags and files mean. CommandError where one cannot be read."""
    more = [f"installPackagePath={package}"] if package else []
    more += [f"revision={revision}"] if revision and revision != "default" else []
    try:
        return user_settings([(name, _text(name, name == files[-1])) for name in files], [*assignments, *more])
    except SettingsError as error:
        raise CommandError(str(error)) from error


def _text(name: str, is_last: bool) -> str:
    if name == "-":
        if not is_last:
            raise CommandError("-f -: standard input can only be the last file")
        return sys.stdin.read()
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise CommandError(f"cannot read {name}: {error}") from error


def read_installation(settings: dict[str, Any], force: bool, platform: str = "") -> Installation:
    """Returns the installation of settings; what has no effect is said on standard error. CommandError where they are wrong."""
    try:
        return render_installation(
            settings, lambda text: click.echo(f"! {text}", err=True), force=force, platform=platform
        )
    except SettingsError as error:
        raise CommandError(str(error)) from error


@click.group()
def manifest() -> None:
    """The objects that an installation consists of."""


@manifest.command()
@click.argument("one")
@click.argument("other")
def diff(one: str, other: str) -> None:
    """Compare two files of objects. The exit status is 1 where they differ."""
    found = differences(objects_of(_text(one, True), one), objects_of(_text(other, True), other))
    write("\n".join(found) or "The files have the same objects.")
    click.get_current_context().exit(1 if found else 0)


@manifest.command()
@operator_options
@click.option(
    "--component",
    "components",
    multiple=True,
    metavar="NAME",
    help="only objects of a component: Base, Pilot, IngressGateways …",
)
@click.option(
    "--cluster-specific",
    "specific",
    is_flag=True,
    help="look what the cluster is, whose defaults are others on some platforms",
)
@of_cluster
def generate(cluster: Cluster, force: bool, components: tuple[str, ...], specific: bool, **where: Any) -> None:
    """Print the objects of an installation as YAML, the same text for the same settings."""
    platform = cluster.ask(_platform) if specific else ""
    installation = read_installation(read_settings(**where), force, platform)
    write(manifest_text(installation.objects(components)).rstrip("\n"))


async def _platform(objects: ObjectClient, _: ObjectClient) -> str:
    from pilot.install.cluster_checks import detect_platform

    return await detect_platform(objects)
