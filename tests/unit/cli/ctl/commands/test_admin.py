"""pilotctl admin log: log levels of a running control plane through ControlZ."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from pilot.cli.pilotctl import pilotctl
from pilot.controlz.application import application
from pilot.controlz.control import Control
from pilot.lib.build_info import build_info
from pilot.lib.logging.log import scope
from pilot.lib.logging.scopes import set_output_level, set_stack_trace_level


async def run(*arguments: str) -> Result:
    """Return the result of a command against a ControlZ server in this process."""
    scope("ads")
    control = Control("x", build_info(), (), {}, lambda: b"", lambda: None, lambda: None)
    async with TestServer(application(control)) as site:
        command = ["admin", "log", "--controlz", f"127.0.0.1:{site.port}", *arguments]
        return await asyncio.to_thread(CliRunner().invoke, pilotctl, command)


@pytest.fixture(autouse=True)
def _reset_levels() -> None:
    for name in ("default", "ads"):
        set_output_level(name, "info")
        set_stack_trace_level(name, "none")


async def test_scopes_are_listed_with_their_levels() -> None:
    result = await run()
    assert result.exit_code == 0, result.output
    head, *rows = result.output.splitlines()
    assert head.split("  ")[0] == "ACTIVE SCOPE"
    assert [row.split()[-2:] for row in rows if row.startswith("ads ")] == [["info", "none"]]


async def test_levels_are_changed_and_reset() -> None:
    changed = json.loads((await run("--level", "ads:debug", "--stack-trace-level", "ads:error", "-o", "json")).output)
    assert [(s["output_level"], s["stack_trace_level"]) for s in changed if s["name"] == "ads"] == [("debug", "error")]
    restored = json.loads((await run("--reset", "-o", "json")).output)
    assert {(s["output_level"], s["stack_trace_level"]) for s in restored} == {("info", "none")}
    everywhere = json.loads((await run("--level", "warn", "-o", "json")).output)
    assert {s["output_level"] for s in everywhere} == {"warn"}


@pytest.mark.parametrize(
    ("level", "text"), [("nothere:debug", "nothere"), ("ads:loud", "Error: --level: 'loud' is not a log level")]
)
async def test_unknown_scope_or_level_is_rejected(level: str, text: str) -> None:
    result = await run("--level", level)
    assert result.exit_code == 1
    assert text in result.output


async def test_unreachable_address_is_reported() -> None:
    result = await asyncio.to_thread(CliRunner().invoke, pilotctl, ["admin", "log", "--controlz", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "cannot reach http://127.0.0.1:1" in result.output
