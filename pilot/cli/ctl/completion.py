"""pilotctl completion: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pilot.cli.ctl.output import write

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """A script that completes commands, for bash, zsh or fish.

    For bash: source <(pilotctl completion bash)
    """
    found = get_completion_class(shell)
    assert found is not None  # it is one of SHELLS
    write(found(ctx.find_root().command, {}, "pilotctl", "_PILOTCTL_COMPLETE").source())
