"""pilotctl analyze: is configuration right, before or after somebody serves it?"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import click
import yaml

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import asks
from pilot.cli.ctl.files import read_files
from pilot.cli.ctl.output import FORMATS, CommandResult, kind_of, show
from pilot.config.problem import plain_problem
from pilot.ingest.analysis import analyze as find_problems
from pilot.ingest.analysis import decode_mesh, read_objects
from pilot.lib.text import one_line
from pilot.mesh.analysis.listed import CHECKS
from pilot.settings.parse import load

FOUND = 79
"""The exit status where there are problems, which is istioctl's too."""
LEVELS = ("warning", "error")


@click.command()
@click.argument("files", nargs=-1)
@click.option(
    "--meshConfigFile",
    "mesh_config",
    type=click.Path(exists=True, dir_okay=False),
    help="mesh config that the files are looked at with",
)
@click.option("-n", "--namespace", help="only objects of a namespace")
@click.option(
    "--failure-threshold",
    "threshold",
    type=click.Choice(LEVELS),
    default="error",
    show_default=True,
    help="from where on it fails",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="form of what is printed",
)
@asks
def analyze(
    client: PageClient,
    files: tuple[str, ...],
    mesh_config: str | None,
    namespace: str | None,
    threshold: str,
    form: str,
) -> None:
    """What is wrong with configuration: with FILES before it is served, without them with that of the running control plane.

    FILES are files and folders of YAML and JSON, - is standard input. Objects are looked at alone and with each other, by the rules that hold
    when they are served. The exit status is 79 where something is wrong.
    """
    found = _of_files(files, mesh_config) if files else client.get("problemz")
    problems = [p for p in found if namespace is None or p.get("namespace", "") == namespace]
    where = f" in namespace {namespace}" if namespace else ""
    show(CommandResult(problems, [_line(p) for p in problems] or [f"✔ No validation issues found{where}."]), form)
    if any(LEVELS.index(p["severity"]) >= LEVELS.index(threshold) for p in problems):
        click.get_current_context().exit(FOUND)


def _of_files(files: Iterable[str], mesh_config: str | None) -> list[dict[str, Any]]:
    mesh, problems = decode_mesh(_plain(mesh_config))
    found = find_problems(read_objects(read_files(files)), mesh, load([], os.environ).settings.mesh, CHECKS)
    return [plain_problem(p) for p in (*problems, *found)]


def _plain(path: str | None) -> Any:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.safe_load(file)
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def _line(problem: dict[str, Any]) -> str:
    """Returns a problem as istioctl writes its messages, with the path in the object before what is wrong."""
    name = "/".join(part for part in (problem.get("namespace"), problem.get("name")) if part)
    place = problem.get("file", "") + (f":{problem['line']}" if problem.get("line") else "")
    subject = " ".join(part for part in (kind_of(problem), name, place) if part)
    path = f"{problem['path']}: " if problem.get("path") else ""
    return one_line(f"{problem['severity'].capitalize()} [{problem['code']}] ({subject}) {path}{problem['message']}")
