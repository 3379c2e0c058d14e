"""pilotctl analyze: check files or the configuration of a running control plane."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import with_client
from pilot.cli.ctl.files import read_files
from pilot.cli.ctl.findings import SEVERITIES, Selection, reaches, with_selection
from pilot.cli.ctl.output import FORMATS, show
from pilot.cli.ctl.progress import step_progress
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.problem import Problem, plain_problem
from pilot.ingest.analysis import analyze as find_problems
from pilot.ingest.analysis import decode_mesh, read_objects
from pilot.ingest.files.documents import SyntaxFault, read_document
from pilot.mesh.analysis.listed import CHECKS
from pilot.settings.parse import load

FOUND = 79
"""Exit status if problems are found. It is the same as istioctl's."""


@click.command()
@click.argument("files", nargs=-1)
@click.option("-f", "--filename", "more_files", multiple=True, hidden=True)  # as in validate
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
    type=click.Choice(SEVERITIES, case_sensitive=False),
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
    more_files: tuple[str, ...],
    mesh_config: str | None,
    selection: Selection,
    threshold: str,
    form: str,
) -> None:
    """Check configuration in files, or the configuration of a running control plane.

    FILES are files and directories of YAML and JSON; - is standard input. Without FILES, the configuration of a
    running control plane is checked. Each object is checked by itself and against the other objects, with the rules of
    the control plane. The exit status is 79 if a problem reaches the failure threshold, and 1 if nothing was checked.
    """
    files += more_files
    reports, checked = (
        _of_files(files, mesh_config, selection.namespace) if files else _of_control_plane(client, selection)
    )
    findings = selection.apply(reports)
    where = f" in namespace {selection.namespace}" if selection.namespace else ""
    result = selection.show(findings, f"✔ No validation issues found{where}.")
    show(result._replace(parts=[*result.parts, checked]), form)
    if any(reaches(finding, threshold) for finding in findings):
        click.get_current_context().exit(FOUND)


def _of_control_plane(client: PageClient, selection: Selection) -> tuple[list[dict[str, Any]], str]:
    """Return the problems in the configuration of a control plane, and the line that says what was checked."""
    query = {"namespace": selection.namespace} if selection.namespace else {}
    return client.get("problemz", **query), f"Checked the configuration of the control plane at {client.address}."


def _of_files(files: Iterable[str], mesh_config: str | None, namespace: str | None) -> tuple[list[dict[str, Any]], str]:
    """Return the problems in files, and the line that says what was checked. Raise CommandError if nothing was."""
    texts = read_files(files)
    mesh, problems = _mesh(mesh_config)
    with step_progress() as on_step:
        objects = read_objects(texts, on_step)
    checked = objects.count - objects.ignored
    contents = f"{_count(objects.count, 'object')} in {_count(len(texts), 'file')}"
    if not (checked or objects.problems):
        kinds = ", and none of a kind that a mesh uses" if objects.count else ""
        raise CommandError(f"nothing was checked: found {contents}{kinds}")
    namespaces = {ref.namespace for ref in (*objects.places, *(p.object for p in objects.problems))}
    if namespace is not None and namespace not in namespaces:
        others = ", ".join(sorted(filter(None, namespaces))) or "none"
        raise CommandError(f"no object is in the namespace {namespace!r}; namespaces of the objects: {others}")
    with step_progress() as on_step:
        file_problems = find_problems(objects, mesh, load([], os.environ).settings.mesh, CHECKS, on_step)
    ignored = f"; {_count(objects.ignored, 'object')} of other kinds ignored" if objects.ignored else ""
    line = f"Checked {_count(checked, 'object')} in {_count(len(texts), 'file')}{ignored}."
    return [plain_problem(p) for p in (*problems, *file_problems)], line


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _mesh(path: str | None) -> tuple[MeshConfig, list[Problem]]:
    """Return the mesh config in a file, or the default, and its problems. Raise CommandError if it is not YAML."""
    if path is None:
        return decode_mesh(None)
    try:
        document = read_document(read_files([path])[path], path)
    except SyntaxFault as fault:
        raise CommandError(f"{path}:{fault.line}: {fault}") from fault
    mesh, problems = decode_mesh(document.plain)
    return mesh, [msgspec.structs.replace(p, file=path, line=document.line_of(p.path)) for p in problems]
