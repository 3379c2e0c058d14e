"""pilotctl completion: print shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pilot.cli.ctl.output import write

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for bash, zsh or fish.

    For bash: source <(pilotctl completion bash)
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None  # it is one of SHELLS
    write(completion_class(ctx.find_root().command, {}, "pilotctl", "_PILOTCTL_COMPLETE").source())
