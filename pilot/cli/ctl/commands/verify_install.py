"""pilotctl verify-install: verify that all objects of an installation exist and are ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from deploy.operator.errors import SettingsError
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, with_cluster
from pilot.cli.ctl.commands.manifest import operator_options, read_cluster_installation, read_settings
from pilot.cli.ctl.output import TextTable, say
from pilot.install.install_plan import build_install_plan
from pilot.install.installation_labels import DEFAULT
from pilot.install.verification import ObjectCheck, verify_plan, verify_revision


@click.command("verify-install")
@operator_options
@with_cluster
def verify_install(cluster: Cluster, force: bool, **where: Any) -> None:
    """Check that an installation matches an IstioOperator. Without one, check that all installed objects are ready."""
    if where["files"] or where["assignments"]:
        try:
            plan = build_install_plan(read_cluster_installation(cluster, read_settings(**where), force))
        except SettingsError as error:
            raise CommandError(str(error)) from error
        checks = cluster.run(lambda _, trial: verify_plan(trial, plan))
    else:
        revision = where["revision"] or DEFAULT
        checks = cluster.run(lambda objects, _: verify_revision(objects, revision))
        if not checks:
            raise CommandError(f"revision {revision} is not installed")
    if not print_checks(checks):
        raise CommandError("verification failed: some objects differ or are not ready")


def print_checks(checks: Sequence[ObjectCheck]) -> bool:
    """Print the checks, and return whether all of them passed."""
    wrong = [check for check in checks if check.problem]
    kinds: dict[str, int] = {}
    for check in checks:
        kinds[check.key.kind.name] = kinds.get(check.key.kind.name, 0) + (not check.problem)
    say([TextTable(("KIND", "VERIFIED"), sorted(kinds.items()))])
    if wrong:
        say([TextTable(("OBJECT", "PROBLEM"), [(check.key, check.problem) for check in wrong])])
    else:
        say([f"✔ {len(checks)} objects verified."])
    return not wrong
