"""Scopes of the log that change while the process runs."""

from __future__ import annotations

import json
import logging
import pathlib
from collections.abc import Iterator

import pytest

from pilot.lib import log
from pilot.lib.log_scopes import find_scope, scopes, set_log_callers, set_output_level, set_stack_trace_level


@pytest.fixture(autouse=True)
def scopes_as_before(logging_as_before: None) -> Iterator[None]:
    before = {state.name: (log.scope(state.name).level, log.scope(state.name).filters[:]) for state in scopes()}
    yield
    for state in scopes():
        level, filters = before.get(state.name, (logging.NOTSET, []))
        log.scope(state.name).setLevel(level)
        log.scope(state.name).filters[:] = filters


def text(path: pathlib.Path) -> str:
    for handler in log.scope("default").handlers:
        handler.flush()
    return path.read_text()


def levels(*names: str) -> list[str]:
    return [state.output_level for name in names if (state := find_scope(name)) is not None]


def test_scopes_are_listed_by_name_with_the_level_that_counts() -> None:
    log.configure("default:warn,ads:debug", False, ["stdout"])
    log.scope("config")
    names = [state.name for state in scopes()]
    assert names == sorted(names)
    assert levels("ads", "config", "default") == ["debug", "warn", "warn"]
    assert all(state.stack_trace_level == "none" and not state.log_callers for state in scopes())


def test_a_scope_that_nobody_has_is_not_made_by_asking() -> None:
    assert find_scope("no-such-scope") is None
    assert "no-such-scope" not in [state.name for state in scopes()]


@pytest.mark.parametrize("level", list(log.LEVELS))
def test_every_level_can_be_set_and_takes_effect_at_once(level: str, tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    set_output_level("ads", level)
    assert levels("ads") == [level]
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        log.scope("ads").log(number, "message")
    assert len(text(tmp_path / "log").splitlines()) == len(log.LEVELS) - 1 - list(log.LEVELS).index(level)


def test_the_level_of_the_default_scope_changes_no_other(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    log.scope("ads")
    set_output_level("default", "debug")
    log.scope("ads").debug("hidden")
    log.scope("default").debug("shown")
    assert levels("default", "ads") == ["debug", "info"]
    assert [line.split("\t")[-1] for line in text(tmp_path / "log").splitlines()] == ["shown"]


def test_stacks_are_written_from_their_level_on(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    set_stack_trace_level("ads", "error")
    log.scope("ads").warning("without")
    assert "test_stacks" not in text(tmp_path / "log")
    log.scope("ads").error("with")
    log.scope("config").error("of another scope")
    lines = text(tmp_path / "log").splitlines()
    stack = [line for line in lines if line.startswith("  ")]
    assert lines.index(stack[0]) == 2
    assert "test_stacks_are_written_from_their_level_on" in stack[-2]
    assert 'log.scope("ads").error("with")' in stack[-1]
    set_stack_trace_level("ads", "none")
    log.scope("ads").error("again without")
    assert text(tmp_path / "log").splitlines()[:-1] == lines


@pytest.mark.parametrize("as_json", [False, True])
def test_callers_are_written_where_a_scope_is_to_have_them(as_json: bool, tmp_path: pathlib.Path) -> None:
    log.configure("default:info", as_json, [str(tmp_path / "log")])
    log.scope("ads").info("before")
    set_log_callers("ads", True)
    log.scope("ads").info("meanwhile")
    set_log_callers("ads", False)
    log.scope("ads").info("after")
    lines = text(tmp_path / "log").splitlines()
    callers = [json.loads(line).get("caller", "") if as_json else line.split("\t")[3] for line in lines]
    assert callers[1].startswith("lib/test_log_scopes.py:")
    assert not any("test_log_scopes" in line for line in (lines[0], lines[2]))
