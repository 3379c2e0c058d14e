"""pilotctl install and upgrade: install an IstioOperator in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from deploy.operator.errors import SettingsError
from deploy.operator.manifest import package_folder
from deploy.operator.settings_tree import value_at
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, confirm, with_cluster
from pilot.cli.ctl.commands.manifest import (
    operator_options,
    read_cluster_installation,
    read_settings,
    warn_of_local_images,
)
from pilot.cli.ctl.commands.verify_install import print_checks
from pilot.cli.ctl.durations import parse_seconds
from pilot.cli.ctl.output import Part, TextTable, say, write
from pilot.cli.ctl.progress import progress_reporter
from pilot.install.cluster_checks import cni_warnings
from pilot.install.install_plan import InstallPlan, build_install_plan
from pilot.install.installation_labels import VERSION
from pilot.install.installer import Installer, InstallOutcome, WaitOptions
from pilot.install.prune import list_installed
from pilot.install.verification import PlannedChange, find_changes, verify_plan
from pilot.kube.object_client import ObjectClient
from pilot.lib.build_info import build_info

MOST_PATHS = 3
"""Maximum number of fields that a dry run lists for an object."""
Function = TypeVar("Function", bound=Callable[..., Any])


def install_options(function: Function) -> Function:
    """Add the options of an installation to a command."""
    options = (
        operator_options,
        with_cluster,
        click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not prompt"),
        click.option(
            "--dry-run", is_flag=True, help="validate everything with the API server without changing anything"
        ),
        click.option(
            "--readiness-timeout",
            "timeout",
            default="5m",
            show_default=True,
            metavar="TIME",
            help="timeout per component",
        ),
        click.option("--verify", is_flag=True, help="verify the installation afterwards"),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@install_options
def install(cluster: Cluster, **options: Any) -> None:
    """Install or update a control plane and gateways."""
    _run(cluster, upgrades=False, **options)


@click.command()
@install_options
def upgrade(cluster: Cluster, **options: Any) -> None:
    """Upgrade an installed control plane to this version."""
    _run(cluster, upgrades=True, **options)


def _run(
    cluster: Cluster, upgrades: bool, yes: bool, dry_run: bool, timeout: str, verify: bool, force: bool, **where: Any
) -> None:
    settings = read_settings(**where)
    waits = WaitOptions(timeout=parse_seconds(timeout, "--readiness-timeout"))
    installation = read_cluster_installation(cluster, settings, force)
    warn_of_local_images(installation.objects())
    try:
        plan = build_install_plan(installation)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    cluster.run(lambda objects, _: _check(objects, plan, force, upgrades))
    profile = value_at(plan.operator, "spec.profile", "default")
    summary = (
        f"install profile {profile}, version {build_info().version}, revision {plan.owner.revision} "
        f"in namespace {plan.system}"
    )
    confirm(f"This will {'simulate: ' if dry_run else ''}{summary}. Continue?", yes or dry_run)

    async def work(objects: ObjectClient, trial: ObjectClient) -> InstallOutcome:
        with progress_reporter() as report:
            return await Installer(objects, waits, report, package_folder(settings.plain)).install(plan)

    outcome = cluster.run(work, dry_run)
    if dry_run and not outcome.failures:
        say(planned_changes(cluster.run(lambda _, trial: find_changes(trial, plan))))
    _print_outcome(outcome, dry_run)
    if verify and not dry_run and not print_checks(cluster.run(lambda _, trial: verify_plan(trial, plan))):
        raise CommandError("verification failed: some objects differ or are not ready")


def planned_changes(changes: Sequence[PlannedChange]) -> Iterator[Part]:
    """Yield what an installation would create and change. Metadata comes last."""
    created, changed = [one for one in changes if not one.paths], [one for one in changes if one.paths]
    yield f"It would create {len(created)} objects and change {len(changed)}."
    if changes:
        rows = [(str(one.key), _shown_paths(one.paths) or "created") for one in (*created, *changed)]
        yield TextTable(("OBJECT", "CHANGE"), rows)


def _shown_paths(paths: Sequence[str]) -> str:
    ordered = sorted(paths, key=lambda path: path.startswith("metadata."))
    more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
    return ", ".join(ordered[:MOST_PATHS]) + more


async def _check(objects: ObjectClient, plan: InstallPlan, force: bool, upgrades: bool) -> None:
    """Print the warnings about an installation. Raise CommandError if the installation must not proceed."""
    if upgrades:
        await _check_versions(objects, plan)
    async for warning in cni_warnings(objects, plan):
        click.echo(f"! {warning}", err=True)
    conflicts = await Installer(objects).find_conflicts(plan)
    for line in conflicts:
        click.echo(f"! {line}", err=True)
    if conflicts and not force:
        raise CommandError(
            "pods would be injected twice: remove one of the webhooks, install another revision, or use --force"
        )


async def _check_versions(objects: ObjectClient, plan: InstallPlan) -> None:
    deployments = [
        plain for plain in await list_installed(objects, plan.owner.selector()) if plain["kind"] == "Deployment"
    ]
    if not deployments:
        raise CommandError(
            f"there is no control plane with revision {plan.owner.revision} to upgrade; use pilotctl install"
        )
    versions = sorted({str(plain["metadata"]["labels"].get(VERSION, "unknown")) for plain in deployments})
    write(f"Installed version: {', '.join(versions)}. New version: {build_info().version}.")


def _print_outcome(outcome: InstallOutcome, dry_run: bool) -> None:
    for failure in outcome.failures:
        click.echo(f"✘ {failure.step}: {failure.reason}", err=True)
        for line in failure.details:
            click.echo(f"    {line}", err=True)
    if outcome.failures:
        raise CommandError("the installation is incomplete; fix the cause and run the same command again")
    for key in outcome.pruned:
        write(f"- {'would delete' if dry_run else 'deleted'} {key}, which is no longer part of the installation")
    for remark in outcome.warnings:
        click.echo(f"! {remark}", err=True)
    write("Nothing was changed. The API server accepts all objects." if dry_run else "✔ Installed.")
