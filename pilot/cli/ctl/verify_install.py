"""pilotctl verify-install: is everything there that was installed, as it should be?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from deploy.operator.errors import SettingsError
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, of_cluster
from pilot.cli.ctl.manifest import operator_options, read_installation, read_settings
from pilot.cli.ctl.output import TextTable, say
from pilot.install.cluster_checks import detect_platform
from pilot.install.install_plan import build_install_plan
from pilot.install.installation_labels import DEFAULT
from pilot.install.verification import ObjectCheck, verify_plan, verify_revision


@click.command("verify-install")
@operator_options
@of_cluster
def verify_install(cluster: Cluster, force: bool, **where: Any) -> None:
    """Compare what is installed with an IstioOperator; without one, see whether what is labelled as installed has come up."""
    if where["files"] or where["assignments"]:
        platform = cluster.ask(lambda objects, _: detect_platform(objects))
        try:
            plan = build_install_plan(read_installation(read_settings(**where), force, platform))
        except SettingsError as error:
            raise CommandError(str(error)) from error
        checked = cluster.ask(lambda _, trial: verify_plan(trial, plan))
    else:
        revision = where["revision"] or DEFAULT
        checked = cluster.ask(lambda objects, _: verify_revision(objects, revision))
        if not checked:
            raise CommandError(f"nothing of revision {revision} is installed")
    if not show_checked(checked):
        raise CommandError("not everything is as it should be")


def show_checked(checked: Sequence[ObjectCheck]) -> bool:
    """Prints what was looked at; returns whether all of it is as it should be."""
    wrong = [each for each in checked if each.problem]
    kinds: dict[str, int] = {}
    for each in checked:
        kinds[each.key.kind.name] = kinds.get(each.key.kind.name, 0) + (not each.problem)
    say([TextTable(("KIND", "AS IT SHOULD BE"), sorted(kinds.items()))])
    if wrong:
        say([TextTable(("OBJECT", "WRONG"), [(each.key, each.problem) for each in wrong])])
    else:
        say([f"✔ {len(checked)} objects are as they should be."])
    return not wrong
