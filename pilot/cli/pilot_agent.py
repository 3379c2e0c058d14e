"""pilot-agent: runs Envoy in a pod.

Each command imports its own dependencies, because the agent uses memory in every pod.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.capture.capture_rules import RulesError
from pilot.agent.capture.capture_settings import CaptureSettings
from pilot.cli.capture import capture, release
from pilot.cli.commands import Command, Program
from pilot.cli.http_request import AddressError, UnreachableError, parse_address, send
from pilot.lib import flags
from pilot.lib.build_info import build_info
from pilot.lib.flags import FlagError
from pilot.lib.logging import log
from pilot.lib.start_error import StartError
from pilot.settings.document import sections
from pilot.settings.parse import load_sections
from pilot.settings.usage import flag_sections
from pilot.settings.without_effect import AGENT_FLAGS, AGENT_VARIABLES, paragraph, without_effect

USAGE = """\
pilot-agent: runs Envoy in a pod

  pilot-agent proxy sidecar|router|waypoint [FLAGS]   run Envoy with its certificates, configuration, probes and metrics
  pilot-agent wait [FLAGS]                            wait until the local proxy is ready
  pilot-agent request METHOD PATH                     send a request to Envoy's admin port
  pilot-agent istio-iptables [FLAGS]                  redirect the traffic of this network namespace to the proxy
  pilot-agent istio-clean-iptables [FLAGS]            remove the redirection
  pilot-agent version                                 print the version
  pilot-agent collateral                              print all flags and environment variables as Markdown
"""
PROXY_USAGE = """\
pilot-agent proxy: run Envoy until SIGTERM

  pilot-agent proxy sidecar|router|waypoint [FLAGS]
"""
WAIT_FLAGS = {
    "timeoutSeconds": "60",
    "requestTimeoutMillis": "500",
    "periodMillis": "500",
    "url": "http://localhost:15021/healthz/ready",
}
READY_PORT = 15021
ADMIN_PORT = "15000"
WAIT_USAGE = f"""\
pilot-agent wait: wait until the local proxy is ready

  pilot-agent wait {" ".join(f"[--{name} {default}]" for name, default in WAIT_FLAGS.items())}
"""
REQUEST_USAGE = f"""\
pilot-agent request: send a request to Envoy's admin port

  pilot-agent request METHOD PATH [--debug-port {ADMIN_PORT}]
"""
HELP = frozenset({"--help", "-h"})
REQUEST_SECONDS = 60
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
LARGEST_COUNT = 86_400_001
"""Milliseconds of a day, plus one."""
_NO_PROXY = "; pilot-agent proxy serves this in the Pod of the proxy, and --url sets another address"
_NO_ADMIN = (
    "; Envoy's admin port is only open in the Pod of the proxy, for example after kubectl exec -c istio-proxy, and "
    "--debug-port sets its number"
)
_log = log.scope("default")


class CallError(Exception):
    """The local proxy is not ready or returned an error. The message is for the user."""


def proxy(argv: Sequence[str]) -> int:
    """Run the agent until a signal arrives."""
    if not HELP.isdisjoint(argv):
        print(PROXY_USAGE + flag_sections(AgentSettings()), end="")
        return 0
    kind, rest = (argv[0], argv[1:]) if argv and not argv[0].startswith("-") else ("sidecar", argv)
    loaded = load_sections(AgentSettings(), rest, os.environ, without_effect=AGENT_FLAGS)
    logs = loaded.settings.log
    try:
        log.configure(logs.output_level, logs.as_json, logs.targets)
    except ValueError as error:
        raise FlagError(str(error)) from error
    for warning in (*loaded.warnings, *without_effect(os.environ, AGENT_VARIABLES)):
        _log.warning("%s", warning)
    os.environ.setdefault(
        "GRPC_ENABLE_FORK_SUPPORT", "0"
    )  # Envoy is started while gRPC's threads run, which need not survive the fork
    from pilot.agent.agent import run

    return run(kind, loaded.settings, os.environ)


def wait(argv: Sequence[str]) -> int:
    """Wait until the proxy is ready. Raise CallError after the timeout."""
    if not HELP.isdisjoint(argv):
        print(WAIT_USAGE, end="")
        return 0
    values, unknown, positional = flags.scan(argv, WAIT_FLAGS.keys(), (), {})
    if unknown or positional:
        raise FlagError(f"wait: unknown arguments: {', '.join([*(f'--{name}' for name in unknown), *positional])}")
    options = {name: values.get(name, [default])[-1] for name, default in WAIT_FLAGS.items()}
    timeout, once, period = (
        _count(name, options[name]) for name in ("timeoutSeconds", "requestTimeoutMillis", "periodMillis")
    )
    try:
        url = parse_address(options["url"], READY_PORT)
    except AddressError as error:
        raise FlagError(f"--url: {error}") from error
    end, last = time.monotonic() + timeout, "no attempt was made"
    while time.monotonic() < end:
        try:
            response = send(url, seconds=once / 1000)
            if response.status < 400:
                return 0
            last = f"{response.status} {response.reason}"
        except UnreachableError as error:
            last = f"{error}{_NO_PROXY if error.is_refused else ''}"
        time.sleep(period / 1000)
    raise CallError(f"the proxy was not ready within {timeout} s: {url}: {last}")


def _count(name: str, text: str) -> int:
    """Return the value of a flag of wait. Raise FlagError unless it is between 1 and the milliseconds of a day."""
    try:
        number = flags.parse_int(text)
    except FlagError as error:
        raise FlagError(f"wait: --{name}: {error}") from None
    if not 0 < number < LARGEST_COUNT:
        raise FlagError(f"wait: --{name}: {number} is not between 1 and {LARGEST_COUNT - 1}")
    return number


def request(argv: Sequence[str]) -> int:
    """Print the response of Envoy's admin port. Raise CallError if Envoy is unreachable or returns an error."""
    if not HELP.isdisjoint(argv):
        print(REQUEST_USAGE, end="")
        return 0
    values, unknown, positional = flags.scan(argv, ("debug-port",), (), {})
    if unknown or len(positional) != 2:
        raise FlagError("request takes METHOD PATH [--debug-port PORT]")
    if positional[1].upper() in METHODS and positional[0].upper() not in METHODS:
        raise FlagError(f"request takes METHOD PATH; did you mean request {positional[1]} {positional[0]}?")
    port, (method, path) = values.get("debug-port", [ADMIN_PORT])[-1], positional
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise FlagError(f"request: --debug-port: {port!r} is not a port from 1 to 65535")
    url = f"http://localhost:{port}/{path.removeprefix('/')}"
    try:
        response = send(url, method.upper(), seconds=REQUEST_SECONDS)
    except UnreachableError as error:
        raise CallError(f"{method} {url}: {error}{_NO_ADMIN if error.is_refused else ''}") from error
    if response.status >= 400:
        raise CallError(f"{method} {url}: {response.status} {response.text.strip() or response.reason}")
    print(response.text, end="")
    return 0


def version(_: Sequence[str]) -> int:
    print(build_info())
    return 0


def collateral(_: Sequence[str]) -> int:
    print(sections(AgentSettings()) + paragraph("Istio's agent", AGENT_VARIABLES), end="")
    print("\n# istio-iptables, istio-clean-iptables\n" + sections(CaptureSettings()), end="")
    return 0


def help_(_: Sequence[str]) -> int:
    print(USAGE, end="")
    return 0


COMMANDS: dict[str, Command] = {
    "proxy": proxy,
    "wait": wait,
    "request": request,
    "istio-iptables": capture,
    "istio-clean-iptables": release,
    "version": version,
    "collateral": collateral,
    "help": help_,
    "--help": help_,
    "-h": help_,
}


PROGRAM = Program("pilot-agent", COMMANDS, "proxy", USAGE, (StartError, CallError, RulesError))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    return PROGRAM.run(argv)


if __name__ == "__main__":
    sys.exit(main())
