"""Changing log scopes at runtime."""

from __future__ import annotations

import json
import logging
import pathlib
from collections.abc import Iterator

import pytest

from pilot.lib.logging import log
from pilot.lib.logging.scopes import (
    find_scope,
    scopes,
    set_log_callers,
    set_output_level,
    set_stack_trace_level,
    unknown_scopes,
)


@pytest.fixture(autouse=True)
def restored_scopes(logging_configuration: None) -> Iterator[None]:
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


def test_scopes_are_listed_with_effective_levels() -> None:
    log.configure("default:warn,ads:debug", False, ["stdout"])
    log.scope("config")
    names = [state.name for state in scopes()]
    assert names == sorted(names)
    assert levels("ads", "config", "default") == ["debug", "warn", "warn"]
    assert all(state.stack_trace_level == "none" and not state.log_callers for state in scopes())


def test_lookup_does_not_create_a_scope() -> None:
    assert find_scope("no-such-scope") is None
    assert "no-such-scope" not in [state.name for state in scopes()]


@pytest.mark.parametrize("level", list(log.LEVELS))
def test_level_change_takes_effect_immediately(level: str, tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    set_output_level("ads", level)
    assert levels("ads") == [level]
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        log.scope("ads").log(number, "message")
    assert len(text(tmp_path / "log").splitlines()) == len(log.LEVELS) - 1 - list(log.LEVELS).index(level)


def test_default_scope_level_changes_no_other_scope(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    log.scope("ads")
    set_output_level("default", "debug")
    log.scope("ads").debug("hidden")
    log.scope("default").debug("shown")
    assert levels("default", "ads") == ["debug", "info"]
    assert [line.split("\t")[-1] for line in text(tmp_path / "log").splitlines()] == ["shown"]


def test_stack_traces_from_a_level(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    set_stack_trace_level("ads", "error")
    log.scope("ads").warning("without")
    assert "test_stack_traces" not in text(tmp_path / "log")
    log.scope("ads").error("with")
    log.scope("config").error("of another scope")
    lines = text(tmp_path / "log").splitlines()
    stack = [line for line in lines if line.startswith("  ")]
    assert lines.index(stack[0]) == 2
    assert "test_stack_traces_from_a_level" in stack[-2]
    assert 'log.scope("ads").error("with")' in stack[-1]
    set_stack_trace_level("ads", "none")
    log.scope("ads").error("again without")
    assert text(tmp_path / "log").splitlines()[:-1] == lines


@pytest.mark.parametrize("as_json", [False, True])
def test_log_callers(as_json: bool, tmp_path: pathlib.Path) -> None:
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


def test_unknown_scopes_are_reported() -> None:
    assert unknown_scopes(log.parse_levels("all:info,ads:debug,info")) == []
    typo, unknown = unknown_scopes(log.parse_levels("authm:debug,nosuch:debug"))
    assert typo == "--log_output_level: log scope 'authm' does not exist; did you mean authn?"
    assert unknown.startswith("--log_output_level: log scope 'nosuch' does not exist; scopes are ads, ")


def test_swapped_level_and_scope_are_named() -> None:
    with pytest.raises(ValueError, match=r"^'ads' is not a log level; did you mean ads:debug\?$"):
        log.parse_levels("debug:ads")
