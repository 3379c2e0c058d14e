"""pilotctl: ask a running control plane what it knows, in tables for people or JSON for programs."""
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pilot.cli.ctl import authz, explain, kube_inject, problems, proxy_config, proxy_status
from pilot.cli.ctl.client import DEFAULT_ADDRESS, Client, CommandError
from pilot.lib.build_info import build_info
from pilot.lib.text import one_line

_COMMANDS = (proxy_status, proxy_config, explain, authz, problems, kube_inject)


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line. Each command sets `run`: (client, arguments) → text to print."""
    parser = argparse.ArgumentParser(prog="pilotctl", description="Ask a running pilot-discovery what it knows.")
    parser.add_argument("--address", default=DEFAULT_ADDRESS, metavar="URL", help="its monitoring port (default %(default)s)")
    parser.add_argument("--version", action="version", version=f"pilotctl {build_info().version}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, or 1 with one sentence on standard error."""
    arguments = build_parser().parse_args(argv)
    try:
        text = arguments.run(Client(arguments.address), arguments)
        encoding = sys.stdout.encoding or "utf-8"  # a terminal may not know every character
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except CommandError as error:
        print(f"pilotctl: {one_line(str(error))}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `pilotctl … | head`: nobody reads the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
