"""pilotctl analyze: check files or the configuration of a running control plane."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import click
import yaml

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import with_client
from pilot.cli.ctl.files import read_files
from pilot.cli.ctl.findings import SEVERITIES, Selection, reaches, with_selection
from pilot.cli.ctl.output import FORMATS, show
from pilot.config.problem import plain_problem
from pilot.ingest.analysis import analyze as find_problems
from pilot.ingest.analysis import decode_mesh, read_objects
from pilot.mesh.analysis.listed import CHECKS
from pilot.settings.parse import load

FOUND = 79
"""Exit status if problems are found. It is the same as istioctl's."""


@click.command()
@click.argument("files", nargs=-1)
@click.option(
    "--meshConfigFile",
    "mesh_config",
    type=click.Path(exists=True, dir_okay=False),
    help="mesh config to check the files with",
)
@with_selection
@click.option(
    "--failure-threshold",
    "threshold",
    type=click.Choice(SEVERITIES),
    default="error",
    show_default=True,
    help="lowest severity that makes the command fail",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="output format",
)
@with_client
def analyze(
    client: PageClient,
    files: tuple[str, ...],
    mesh_config: str | None,
    selection: Selection,
    threshold: str,
    form: str,
) -> None:
    """Check configuration in files, or the configuration of a running control plane.

    FILES are files and directories of YAML and JSON; - is standard input. Without FILES, the configuration of a
    running control plane is checked. Each object is checked by itself and against the other objects, with the rules of
    the control plane. The exit status is 79 if a problem reaches the failure threshold.
    """
    reports = _of_files(files, mesh_config) if files else client.get("problemz")
    findings = selection.apply(reports)
    where = f" in namespace {selection.namespace}" if selection.namespace else ""
    show(selection.show(findings, f"✔ No validation issues found{where}."), form)
    if any(reaches(finding, threshold) for finding in findings):
        click.get_current_context().exit(FOUND)


def _of_files(files: Iterable[str], mesh_config: str | None) -> list[dict[str, Any]]:
    mesh, problems = decode_mesh(_plain(mesh_config))
    file_problems = find_problems(read_objects(read_files(files)), mesh, load([], os.environ).settings.mesh, CHECKS)
    return [plain_problem(p) for p in (*problems, *file_problems)]


def _plain(path: str | None) -> Any:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.safe_load(file)
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error
