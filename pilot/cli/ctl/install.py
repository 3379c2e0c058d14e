"""pilotctl install and upgrade: put into a cluster what an IstioOperator means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from deploy.operator.errors import SettingsError
from deploy.operator.manifest import package_folder
from deploy.operator.settings_tree import value_at
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, confirm, of_cluster
from pilot.cli.ctl.manifest import operator_options, read_installation, read_settings
from pilot.cli.ctl.output import write
from pilot.cli.ctl.progress import shown_progress
from pilot.cli.ctl.verify_install import show_checked
from pilot.install.cluster_checks import cni_warnings, detect_platform
from pilot.install.install_plan import InstallPlan, build_install_plan
from pilot.install.installation_labels import VERSION
from pilot.install.installer import Installer, InstallOutcome, WaitOptions
from pilot.install.prune import list_installed
from pilot.install.verification import verify_plan
from pilot.kube.object_client import ObjectClient
from pilot.lib.build_info import build_info
from pilot.lib.duration import parse_duration

Function = TypeVar("Function", bound=Callable[..., Any])


def install_options(function: Function) -> Function:
    """Gives a command the options that say what is installed and how."""
    options = (
        operator_options,
        of_cluster,
        click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not ask"),
        click.option("--dry-run", is_flag=True, help="have the API server check everything, and change nothing"),
        click.option(
            "--readiness-timeout",
            "timeout",
            default="5m",
            show_default=True,
            metavar="TIME",
            help="how long each component may take",
        ),
        click.option("--verify", is_flag=True, help="look afterwards whether everything is there as it should be"),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@install_options
def install(cluster: Cluster, **options: Any) -> None:
    """Install a control plane and gateways, or change what is installed."""
    _run(cluster, upgrades=False, **options)


@click.command()
@install_options
def upgrade(cluster: Cluster, **options: Any) -> None:
    """Install this version in the place of the one that is there."""
    _run(cluster, upgrades=True, **options)


def _run(
    cluster: Cluster, upgrades: bool, yes: bool, dry_run: bool, timeout: str, verify: bool, force: bool, **where: Any
) -> None:
    settings = read_settings(**where)
    waits = WaitOptions(timeout=_seconds(timeout))
    platform = cluster.ask(lambda objects, _: detect_platform(objects))
    installation = read_installation(settings, force, platform)
    try:
        plan = build_install_plan(installation)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    cluster.ask(lambda objects, _: _check(objects, plan, force, upgrades))
    profile = value_at(plan.operator, "spec.profile", "default")
    what = f"install profile {profile}, version {build_info().version}, revision {plan.owner.revision}, into the namespace {plan.system}"
    confirm(f"This will {'try to ' if dry_run else ''}{what}. Go on?", yes or dry_run)

    async def work(objects: ObjectClient, trial: ObjectClient) -> InstallOutcome:
        with shown_progress() as report:
            return await Installer(objects, waits, report, package_folder(settings)).install(plan)

    _say(cluster.ask(work, dry_run), dry_run)
    if verify and not dry_run and not show_checked(cluster.ask(lambda _, trial: verify_plan(trial, plan))):
        raise CommandError("what was installed is not as it should be")


def _seconds(text: str) -> float:
    try:
        return parse_duration(text).seconds
    except ValueError as error:
        raise CommandError(f"--readiness-timeout {text}: {error}") from error


async def _check(objects: ObjectClient, plan: InstallPlan, force: bool, upgrades: bool) -> None:
    """Says what speaks against an installation. CommandError where it must not be."""
    if upgrades:
        await _check_versions(objects, plan)
    async for warning in cni_warnings(objects, plan):
        click.echo(f"! {warning}", err=True)
    found = await Installer(objects).find_conflicts(plan)
    for line in found:
        click.echo(f"! {line}", err=True)
    if found and not force:
        raise CommandError(
            "pods would be injected twice: remove one of the webhooks, install another revision, or --force"
        )


async def _check_versions(objects: ObjectClient, plan: InstallPlan) -> None:
    there = [plain for plain in await list_installed(objects, plan.owner.selector()) if plain["kind"] == "Deployment"]
    if not there:
        raise CommandError(
            f"no control plane of revision {plan.owner.revision} is installed that could be upgraded: pilotctl install"
        )
    versions = sorted({str(plain["metadata"]["labels"].get(VERSION, "unknown")) for plain in there})
    write(f"There is version {', '.join(versions)}; this is {build_info().version}.")


def _say(outcome: InstallOutcome, dry_run: bool) -> None:
    for failure in outcome.failures:
        click.echo(f"✘ {failure.step}: {failure.reason}", err=True)
        for line in failure.details:
            click.echo(f"    {line}", err=True)
    if outcome.failures:
        raise CommandError("not everything is installed; once the cause is gone, the same command goes on")
    for key in outcome.pruned:
        write(f"- {'would delete' if dry_run else 'deleted'} {key}, which is not meant any more")
    for remark in outcome.warnings:
        click.echo(f"! {remark}", err=True)
    write("Nothing was changed: the API server takes all of it." if dry_run else "✔ Installed.")
