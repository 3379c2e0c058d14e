"""pilotctl validate: validate each object separately."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.files import read_files
from pilot.cli.ctl.output import write
from pilot.config.problem import Problem, Severity
from pilot.ingest.analysis import read_objects
from pilot.lib.text import one_line


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="file or directory of objects; - for standard input",
)
@click.pass_context
def validate(ctx: click.Context, files: Sequence[str]) -> None:
    """Validate objects one by one with the rules of the validating webhook.

    The exit status is 1 if an object is invalid, or if there is none. Use `pilotctl analyze` to also check objects
    against each other.
    """
    texts = read_files(files)
    failed, checked = False, 0
    for name, text in texts.items():
        objects = read_objects({name: text})
        checked += objects.count - objects.ignored
        errors = [p for p in objects.problems if p.severity is Severity.ERROR]
        warnings = [p for p in objects.problems if p.severity is not Severity.ERROR]
        failed |= bool(errors)
        if warnings:
            write("\n".join([f'"{name}" has warnings:', *map(_line, warnings)]))
        if errors:
            click.echo("\n".join([f'Error: "{name}" is not valid:', *map(_line, errors)]), err=True)
        elif objects.count == objects.ignored and not warnings:
            write(f'"{name}" contains no objects of kinds that a mesh uses')
        elif not warnings:
            write(f'"{name}" is valid')
    if not failed and not checked:
        raise CommandError("nothing was validated, because there are no objects of kinds that a mesh uses")
    ctx.exit(int(failed))


def _line(problem: Problem) -> str:
    about = " ".join(part for part in (str(problem.object), problem.path) if part)
    return one_line(
        f"  * {f'line {problem.line}: ' if problem.line else ''}{about}{': ' if about else ''}{problem.message}"
    )
