"""pilotctl admin log: how much each scope of the control plane's log says, and changes of that while it runs."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import answers
from pilot.cli.ctl.output import CommandResult, TextTable

CONTROLZ = "http://127.0.0.1:9876"
_TIMEOUT = 30.0
_HEAD = ("ACTIVE SCOPE", "DESCRIPTION", "LOG LEVEL", "STACK TRACE LEVEL")


@click.group()
def admin() -> None:
    """The control plane itself."""


@admin.command("log")
@click.option(
    "--level", default="", metavar="[SCOPE:]LEVEL,…", help="levels from now on; a level alone is that of every scope"
)
@click.option(
    "--stack-trace-level",
    default="",
    metavar="[SCOPE:]LEVEL,…",
    help="levels from which on a stack is written below a message",
)
@click.option("-r", "--reset", is_flag=True, help="set every scope to info, without stacks")
@click.option("--controlz", default=CONTROLZ, show_default=True, metavar="URL", help="ControlZ of the control plane")
@answers
def log(level: str, stack_trace_level: str, reset: bool, controlz: str) -> CommandResult:
    """The scopes of the log with their levels, as they are after what the options change."""
    site = _Site(controlz)
    if reset:
        for state in site.scopes():
            site.change(state["name"], {"output_level": "info", "stack_trace_level": "none"})
    for field, said in (("output_level", level), ("stack_trace_level", stack_trace_level)):
        for part in filter(None, (part.strip() for part in said.split(","))):
            name, _, wanted = part.rpartition(":")
            for scope in (name,) if name else [state["name"] for state in site.scopes()]:
                site.change(scope, {field: wanted})
    found = site.scopes()
    rows = [(state["name"], state["description"], state["output_level"], state["stack_trace_level"]) for state in found]
    return CommandResult(found, (TextTable(_HEAD, rows),))


class _Site:
    """ControlZ at an address; the scheme may be missing."""

    def __init__(self, address: str) -> None:
        self._address = (address if "://" in address else f"http://{address}").rstrip("/")

    def scopes(self) -> list[dict[str, Any]]:
        """Returns every scope with its levels."""
        found: list[dict[str, Any]] = json.loads(self._ask("scopej/"))
        return found

    def change(self, scope: str, fields: dict[str, str]) -> None:
        """Changes fields of a scope. CommandError where there is no such scope or level."""
        self._ask(f"scopej/{urllib.parse.quote(scope, safe='')}", fields)

    def _ask(self, path: str, fields: dict[str, str] | None = None) -> str:
        body = json.dumps(fields).encode() if fields is not None else None
        try:
            request = urllib.request.Request(
                f"{self._address}/{path}", data=body, method="PUT" if body is not None else "GET"
            )
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                answer: bytes = response.read()
                return answer.decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise CommandError(
                error.read().decode(errors="replace").strip() or f"{self._address} answers {error.code}"
            ) from error
        except (urllib.error.URLError, ValueError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(
                f"cannot ask {self._address}: {reason}; ControlZ is for callers on its machine (--controlz says where)"
            ) from error
