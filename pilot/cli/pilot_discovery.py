"""pilot-discovery: the control plane."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from pilot.cli.commands import Command, Program, fail
from pilot.cli.http_request import UnreachableError, send
from pilot.cli.resources import claim_resources
from pilot.lib.build_info import build_info
from pilot.lib.flags import FlagError
from pilot.lib.logging import log
from pilot.lib.logging.scopes import unknown_scopes
from pilot.lib.start_error import StartError
from pilot.settings.document import document
from pilot.settings.parse import load
from pilot.settings.usage import usage

NO_COMMAND = """\
No command. To serve the configuration in a directory to proxies: pilot-discovery discovery --configDir=DIR
"pilot-discovery --help" lists the other commands.
"""
USAGE = """\
pilot-discovery: a service-mesh control plane

  pilot-discovery discovery [FLAGS]               serve configuration to proxies; --help lists the flags
  pilot-discovery request METHOD PATH [BODY]      query a local control plane, for example: request GET debug/syncz
  pilot-discovery version                         print the version
  pilot-discovery collateral                      print all flags and environment variables as Markdown
"""
NO_THREAD = "can't start new thread"
HELP = frozenset({"--help", "-h"})
MONITORING = "http://127.0.0.1:15014"
REQUEST_SECONDS = 60
GRPC_VARIABLES = {
    # Disabling gRPC's event engine for server listeners makes a push 20 % cheaper, because each message crosses two
    # threads fewer. gRPC ignores names of experiments that it does not support.
    "GRPC_EXPERIMENTS": "-event_engine_listener",
    # gRPC would write a line to stderr for each invalid header, which anyone can send in 3 bytes.
    "GRPC_VERBOSITY": "NONE",
}
"""Defaults of variables that gRPC reads when it is imported."""
_NO_SERVER = (
    "; run this where pilot-discovery runs with its default --monitoringAddr, for example after kubectl exec; "
    "pilotctl --address URL reads another one"
)
_log = log.scope("default")


class RequestError(Exception):
    """A running control plane is unreachable or returned an error. The message is for the user."""


def discovery(argv: Sequence[str]) -> int:
    """Serve until a signal arrives."""
    if not HELP.isdisjoint(argv):
        print(usage(), end="")
        return 0
    loaded = load(argv, os.environ)
    try:
        log.configure(loaded.settings.log.output_level, loaded.settings.log.as_json, loaded.settings.log.targets)
    except ValueError as error:
        raise FlagError(str(error)) from error
    defaults = load((), {}).flags
    for name, value in loaded.flags.items():
        _log.debug('FLAG: --%s="%s"', name, value)
    _log.info(
        "%s",
        " ".join(
            ["FLAG:", *(f'--{name}="{value}"' for name, value in loaded.flags.items() if value != defaults[name])]
        ),
    )
    warnings = [*loaded.warnings, *unknown_scopes(log.parse_levels(loaded.settings.log.output_level))]
    kubernetes = loaded.settings.kubernetes
    if kubernetes.context and not (kubernetes.kubeconfig or kubernetes.kubeconfig_env):
        warnings.append("--context has no effect without --kubeconfig")
    for warning in warnings:
        _log.warning("%s", warning)
    for name, value in GRPC_VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        claim_resources()
        gc.disable()  # nothing that is imported is garbage
        try:
            from pilot import bootstrap as app

            gc.freeze()
        finally:
            gc.enable()
        app.run(loaded.settings)
    except StartError as error:
        return fail(str(error))
    except MemoryError:
        return fail("not enough memory")
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) or str(error) == NO_THREAD:
            return fail(f"cannot start: {getattr(error, 'strerror', None) or error}")
        raise
    return 0


def request(argv: Sequence[str]) -> int:
    """Print the response of a running control plane's monitoring port. Raise RequestError for error statuses other than
    404."""
    if not HELP.isdisjoint(argv):
        print(USAGE, end="")
        return 0
    if not 2 <= len(argv) <= 3:
        raise FlagError("request takes METHOD PATH [BODY], for example: pilot-discovery request GET debug/syncz")
    method, path, *body = argv
    url = f"{MONITORING}/{path.removeprefix('/')}"
    try:
        response = send(url, method.upper(), os.fsencode(body[0]) if body else None, REQUEST_SECONDS)
    except UnreachableError as error:
        raise RequestError(f"{method} {url}: {error}{_NO_SERVER if error.is_refused else ''}") from error
    print(response.text)
    if response.status >= 400 and response.status != 404:
        raise RequestError(f"{method} {url}: {response.status} {response.reason}")
    return 0


def version(_: Sequence[str]) -> int:
    print(build_info())
    return 0


def collateral(_: Sequence[str]) -> int:
    print(document(), end="")
    return 0


def help_(_: Sequence[str]) -> int:
    print(USAGE, end="")
    return 0


COMMANDS: dict[str, Command] = {
    "discovery": discovery,
    "request": request,
    "version": version,
    "collateral": collateral,
    "help": help_,
    "--help": help_,
    "-h": help_,
}


PROGRAM = Program("pilot-discovery", COMMANDS, "discovery", NO_COMMAND, (RequestError,))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    return PROGRAM.run(argv)


if __name__ == "__main__":
    sys.exit(main())
