"""pilotctl admin log: show and change the log levels of a running control plane."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable
from typing import Any

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import AliasGroup, with_output
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.http_request import AddressError, UnreachableError, parse_address, send
from pilot.lib.suggestion import choices

CONTROLZ_PORT = 9876
CONTROLZ = f"http://127.0.0.1:{CONTROLZ_PORT}"
_TIMEOUT = 30.0
_HINT = "--controlz sets its address"
_FIELDS = ("name", "description", "output_level", "stack_trace_level")
_OPTIONS = {"output_level": "--level", "stack_trace_level": "--stack-trace-level"}
_HEAD = ("ACTIVE SCOPE", "DESCRIPTION", "LOG LEVEL", "STACK TRACE LEVEL")


@click.group(cls=AliasGroup)
def admin() -> None:
    """Manage the control plane."""


@admin.command("log")
@click.option(
    "--level",
    default="",
    metavar="[SCOPE:]LEVEL,…",
    help="output levels to set; a LEVEL without SCOPE applies to every scope",
)
@click.option(
    "--stack-trace-level",
    default="",
    metavar="[SCOPE:]LEVEL,…",
    help="minimum levels of messages that include a stack trace",
)
@click.option("-r", "--reset", is_flag=True, help="reset every scope to level info, without stack traces")
@click.option(
    "--controlz", default=CONTROLZ, show_default=True, metavar="URL", help="ControlZ address of the control plane"
)
@with_output
def log(level: str, stack_trace_level: str, reset: bool, controlz: str) -> CommandResult:
    """List the log scopes with their levels, and set levels."""
    for flag, levels in (("--level", level), ("--stack-trace-level", stack_trace_level)):
        if "=" in levels:
            raise click.UsageError(f"{flag} {levels!r}: use {levels.replace('=', ':')!r}")
    site = _Site(controlz)
    site.check_names(
        part.rpartition(":")[0].strip() for levels in (level, stack_trace_level) for part in levels.split(",")
    )
    if reset:
        for state in site.scopes():
            site.change(state["name"], {"output_level": "info", "stack_trace_level": "none"})
    for field, levels in zip(_OPTIONS, (level, stack_trace_level), strict=True):
        for part in filter(None, (part.strip() for part in levels.split(","))):
            name, _, new_level = part.rpartition(":")
            for scope in (name,) if name else [state["name"] for state in site.scopes()]:
                site.change(scope, {field: new_level})
    states = site.scopes()
    rows = [
        (state["name"], state["description"], state["output_level"], state["stack_trace_level"]) for state in states
    ]
    return CommandResult(states, (TextTable(_HEAD, rows),))


class _Site:
    """Client for ControlZ. `address` has any form that `parse_address` accepts."""

    def __init__(self, address: str) -> None:
        try:
            self._address = parse_address(address, CONTROLZ_PORT)
        except AddressError as error:
            raise click.BadParameter(str(error), param_hint="'--controlz'") from error

    def scopes(self) -> list[dict[str, Any]]:
        """Return all scopes with their levels."""
        try:
            states: list[dict[str, Any]] = json.loads(self._request("scopej/"))
            return [{field: state[field] for field in _FIELDS} for state in states]
        except (ValueError, LookupError, TypeError) as error:
            raise CommandError(f"{self._address} is not ControlZ: it does not list log scopes; {_HINT}") from error

    def check_names(self, names: Iterable[str]) -> None:
        """Raise CommandError if a scope does not exist."""
        names = list(filter(None, names))
        scopes = [state["name"] for state in self.scopes()] if names else []
        for name in names:
            if name not in scopes:
                raise CommandError(f"--level: there is no log scope {name!r}{choices(name, scopes)}")

    def change(self, scope: str, fields: dict[str, str]) -> None:
        """Change fields of a scope. Raise CommandError if the scope or the level does not exist."""
        self._request(f"scopej/{urllib.parse.quote(scope, safe='')}", fields)

    def _request(self, path: str, fields: dict[str, str] | None = None) -> str:
        body = json.dumps(fields).encode() if fields is not None else None
        try:
            response = send(f"{self._address}/{path}", "GET" if body is None else "PUT", body, _TIMEOUT)
        except UnreachableError as error:
            raise CommandError(
                f"cannot reach {self._address}: {error}; ControlZ accepts local connections only; {_HINT}"
            ) from error
        if response.status >= 400:
            text = response.text.strip()
            if text == "404 page not found":
                raise CommandError(f"{self._address} is not ControlZ: it has no log scopes; {_HINT}")
            for field, option in _OPTIONS.items():
                text = f"{option}:{text.removeprefix(f'{field}:')}" if text.startswith(f"{field}:") else text
            raise CommandError(
                text
                if fields is not None and text and "<" not in text
                else f"{self._address}/{path} returned {response.status} {response.reason}; {_HINT}"
            )
        return response.text
