"""pilotctl manifest: print and compare the objects of installations."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deploy.images import local_image_remarks
from deploy.operator.components import COMPONENTS
from deploy.operator.errors import SettingsError
from deploy.operator.inputs import UserSettings, profile_names, user_settings
from deploy.operator.manifest import Installation, manifest_text, render_installation, resolve_operator
from deploy.operator.validate import revision_fault
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, with_cluster
from pilot.cli.ctl.command import AliasGroup
from pilot.cli.ctl.files import write_file
from pilot.cli.ctl.object_diff import differences, objects_of
from pilot.cli.ctl.output import write
from pilot.lib.suggestion import did_you_mean

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Function = TypeVar("Function", bound=Callable[..., Any])


def operator_options(function: Function) -> Function:
    """Add the options that describe an installation: `files`, `assignments`, `package`, `revision` and `force`."""
    options = (
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            metavar="FILE",
            help="IstioOperator file; later files override earlier ones; - for standard input",
        ),
        click.option(
            "-s",
            "--set",
            "assignments",
            multiple=True,
            metavar="PATH=VALUE",
            help="setting, such as values.pilot.autoscaleMin=2",
        ),
        click.option(
            "-d",
            "--manifests",
            "package",
            default="",
            metavar="DIR",
            help="directory with charts and profiles to use instead of the built-in ones",
        ),
        click.option("-r", "--revision", default="", help="control plane revision"),
        click.option("--force", is_flag=True, help="continue despite invalid settings where possible"),
    )
    for option in reversed(options):
        function = option(function)
    return function


def read_settings(files: tuple[str, ...], assignments: tuple[str, ...], package: str, revision: str) -> UserSettings:
    """Return the IstioOperator that files and flags describe. Raise CommandError if a file or flag is invalid."""
    if revision and (fault := revision_fault(revision)):
        raise CommandError(f"--revision: {fault}")
    more = [f"installPackagePath={package}"] if package else []
    more += [f"revision={revision}"] if revision and revision != "default" else []
    try:
        return user_settings([(name, _text(name, name == files[-1])) for name in files], [*assignments, *more])
    except SettingsError as error:
        raise CommandError(str(error)) from error


def _text(name: str, is_last: bool) -> str:
    if name == "-":
        if not is_last:
            raise CommandError("-f -: standard input must be the last file")
        return sys.stdin.read()
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise CommandError(
            f"cannot read {name}: {getattr(error, 'strerror', None) or 'not a text in UTF-8'}"
        ) from error


def read_installation(settings: UserSettings, force: bool, platform: str = "") -> Installation:
    """Render an installation. Print warnings about settings that have no effect.

    Raise CommandError if the settings are invalid.
    """
    try:
        return render_installation(
            settings.plain,
            lambda text: click.echo(f"! {text}", err=True),
            force=force,
            platform=platform,
            origin=settings.origin,
        )
    except SettingsError as error:
        raise CommandError(str(error)) from error


def check_settings(settings: UserSettings, force: bool) -> None:
    """Raise CommandError if the settings of an installation are invalid."""
    try:
        resolve_operator(settings.plain, lambda _: None, None, force, origin=settings.origin)
    except SettingsError as error:
        raise CommandError(str(error)) from error


def read_cluster_installation(
    cluster: Cluster, settings: UserSettings, force: bool, dry_run: bool = False
) -> Installation:
    """Render an installation with the defaults of the cluster's platform. Settings are checked before connecting."""
    check_settings(settings, force)
    return read_installation(settings, force, cluster.run(_platform, dry_run))


def warn_of_local_images(objects: Iterable[dict[str, Any]]) -> None:
    """Print a warning if an image in an installation is in no registry."""
    for remark in local_image_remarks(objects, "spec.values.pilot.image"):
        click.echo(f"! {remark}", err=True)


_INSTALL = "use pilotctl install {arguments}"


@click.group(cls=AliasGroup, hints={"apply": _INSTALL, "install": _INSTALL})
def manifest() -> None:
    """Print and compare the objects of an installation."""


@manifest.command()
@click.argument("one", metavar="FILE1")
@click.argument("other", metavar="FILE2")
def diff(one: str, other: str) -> None:
    """Compare the objects in two files. The exit status is 1 if they differ."""
    _refuse_profiles(one, other)
    if one == other == "-":
        raise click.UsageError("only one of the files can be standard input")
    names = tuple("standard input" if name == "-" else name for name in (one, other))
    first, second = (objects_of(_text(file, True), name) for file, name in zip((one, other), names, strict=True))
    lines = differences(first, second, names)
    write("\n".join(lines) or "The files contain the same objects.")
    click.get_current_context().exit(1 if lines else 0)


def _refuse_profiles(*arguments: str) -> None:
    """Raise UsageError if arguments that should be files are profiles."""
    names = profile_names()
    profiles = [name for name in arguments if name in names and not os.path.exists(name)]
    if len(profiles) == len(arguments):
        listed = " and ".join(profiles)
        raise click.UsageError(f"{listed} are profiles: use pilotctl profile diff {' '.join(profiles)}")
    if profiles:
        command = f"pilotctl manifest generate --set profile={profiles[0]} -o FILE"
        raise click.UsageError(f"{profiles[0]} is a profile, not a file: save its objects with {command}")


@manifest.command()
@operator_options
@click.option(
    "--component",
    "components",
    multiple=True,
    metavar="NAME",
    help="only objects of this component: Base, Pilot, IngressGateways …",
)
@click.option(
    "--cluster-specific",
    "cluster_specific",
    is_flag=True,
    help="detect the platform of the cluster and use its defaults",
)
@click.option("-o", "--output", metavar="FILE", help="output file (default: standard output)")
@with_cluster
def generate(
    cluster: Cluster,
    force: bool,
    components: tuple[str, ...],
    cluster_specific: bool,
    output: str | None,
    **where: Any,
) -> None:
    """Print the objects of an installation as YAML. The output is deterministic."""
    settings = read_settings(**where)
    installation = (
        read_cluster_installation(cluster, settings, force) if cluster_specific else read_installation(settings, force)
    )
    objects = installation.objects([_component(name, installation) for name in components])
    warn_of_local_images(objects)
    text = manifest_text(objects).rstrip("\n")
    if output:
        write_file(output, f"{text}\n")
    else:
        write(text)


def _component(text: str, installation: Installation) -> str:
    """Return the name of the component that `text` selects, regardless of case.

    Raise CommandError if there is no such component, or if the installation does not contain it.
    """
    names = {component.name.lower(): component for component in COMPONENTS}
    component = names.get(text.lower())
    if component is None:
        valid = ", ".join(component.name for component in COMPONENTS)
        suggestion = did_you_mean(text, [component.name for component in COMPONENTS])
        raise CommandError(f"--component {text!r}: unknown component{suggestion}; valid components are {valid}")
    if component.name not in {enabled.component.name for enabled, _ in installation.components}:
        raise CommandError(
            f"--component {component.name}: this installation does not enable it; "
            f"enable it in spec.components.{component.field}"
        )
    return component.name


async def _platform(objects: ObjectClient, _: ObjectClient) -> str:
    from pilot.install.cluster_checks import detect_platform

    return await detect_platform(objects)
