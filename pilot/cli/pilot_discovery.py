"""pilot-discovery: the control plane's command line."""
from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

from pilot.lib import log
from pilot.lib.build_info import build_info
from pilot.lib.flags import FlagError
from pilot.settings.document import document
from pilot.settings.parse import load

USAGE = """\
pilot-discovery: a service-mesh control plane

  pilot-discovery discovery [FLAGS]               serve configuration to proxies
  pilot-discovery request METHOD PATH [BODY]      ask a running one on this machine, such as: request GET debug/syncz
  pilot-discovery version                         which build this is
  pilot-discovery collateral                      all flags and environment variables, as Markdown
"""
MONITORING = "http://127.0.0.1:15014"
REQUEST_SECONDS = 60
# With gRPC's own polling instead of its "event engine" for what a server accepts, a push costs a fifth less: two threads fewer
# pass each message on. It looks at this when it is imported; one that does not know the name any more ignores it.
GRPC_EXPERIMENTS = "-event_engine_listener"
_log = log.scope("default")


class RequestError(Exception):
    """A running server cannot be asked, or refuses; the text is for the user."""


def discovery(argv: Sequence[str]) -> int:
    """Serve until a signal."""
    loaded = load(argv, os.environ)
    try:
        log.configure(loaded.settings.log.output_level, loaded.settings.log.as_json, loaded.settings.log.targets)
    except ValueError as error:
        raise FlagError(f"logging: {error}") from error
    for name, value in loaded.flags.items():
        _log.info('FLAG: --%s="%s"', name, value)
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    os.environ.setdefault("GRPC_EXPERIMENTS", GRPC_EXPERIMENTS)
    from pilot import app

    try:
        app.run(loaded.settings)
    except app.StartError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def request(argv: Sequence[str]) -> int:
    """Print what the monitoring port of a running server answers; 1 for a status above 399 that is not 404."""
    if not 2 <= len(argv) <= 3:
        raise FlagError("request takes METHOD PATH [BODY]")
    method, path, *body = argv
    url = f"{MONITORING}/{path.removeprefix('/')}"
    asked = urllib.request.Request(url, data=body[0].encode() if body else None, method=method.upper())
    try:
        with urllib.request.urlopen(asked, timeout=REQUEST_SECONDS) as response:
            print(response.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        print(error.read().decode(errors="replace"))
        if error.code != 404:
            raise RequestError(f"{method} {url}: {error.code} {error.reason}") from error
    except OSError as error:
        raise RequestError(f"{method} {url}: {getattr(error, 'reason', error)}") from error
    return 0


def version(_: Sequence[str]) -> int:
    print(build_info())
    return 0


def collateral(_: Sequence[str]) -> int:
    print(document(), end="")
    return 0


def usage(_: Sequence[str]) -> int:
    print(USAGE, end="")
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "discovery": discovery, "request": request, "version": version, "collateral": collateral, "help": usage, "--help": usage, "-h": usage,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0, or 1 with one sentence on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    command = COMMANDS.get(name)
    if command is None:
        print(f"Error: unknown command {name!r} for pilot-discovery\n\n{USAGE}", end="", file=sys.stderr)
        return 1
    try:
        return command(rest)
    except (FlagError, RequestError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
