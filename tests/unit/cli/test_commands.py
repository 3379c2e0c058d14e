"""Flags, log levels and settings of the programs at their start."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from pilot.cli.pilot_agent import main as pilot_agent
from pilot.cli.pilot_discovery import main as pilot_discovery
from pilot.cli.pilot_operator import main as pilot_operator
from pilot.lib.logging import log
from pilot.settings.parse import load

Main = Callable[[list[str]], int]
PROGRAMS: dict[str, tuple[Main, str, str]] = {
    "istio-iptables": (pilot_agent, "pilot.agent.capture.istio_iptables", "ENVOY_PORT"),
    "istio-clean-iptables": (pilot_agent, "pilot.agent.capture.istio_iptables", "ENVOY_PORT"),
    "discovery": (pilot_discovery, "pilot.bootstrap", "PILOT_DEBOUNCE_MAX"),
    "server": (pilot_operator, "pilot.operator.operator_process", "RENEW_DEADLINE"),
}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"WATCH_NAMESPACE": "one", "HOME": "/nowhere"})


@pytest.fixture
def program_runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Settings of the programs that ran."""
    runs: list[Any] = []

    def run(settings: Any, *_: Any) -> int:
        runs.append(settings)
        return 0

    for _, module, _ in PROGRAMS.values():
        monkeypatch.setattr(import_module(module), "run", run)
    return runs


def log_lines(path: pathlib.Path) -> list[list[str]]:
    """Return the level and text of each line of a log."""
    for handler in log.scope("default").handlers:
        handler.flush()
    return [line.split("\t")[1:] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("command", PROGRAMS)
def test_log_opens_before_variable_warnings(
    command: str,
    program_runs: list[Any],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main, _, variable = PROGRAMS[command]
    monkeypatch.setitem(os.environ, variable, "nonsense")
    assert main([command, "--log_output_level=default:debug", f"--log_target={tmp_path}/log"]) == 0, (
        capsys.readouterr().err
    )
    assert log.scope("default").getEffectiveLevel() == logging.DEBUG
    (warning,) = [text for level, text in log_lines(tmp_path / "log") if level == "warn"]
    assert warning.startswith(f"environment variable {variable} is ignored: ")
    assert len(program_runs) == 1
    assert main([command, "--log_output_level=loud"]) == 1
    assert "--log_output_level: 'loud' is not a log level" in capsys.readouterr().err
    assert len(program_runs) == 1


def test_iptables_commands_set_or_remove_rules(program_runs: list[Any]) -> None:
    arguments = ["--reconcile", "--force-apply=true", "-p", "15002"]
    assert [pilot_agent([command, *arguments]) for command in ("istio-iptables", "istio-clean-iptables")] == [0, 0]
    assert [(settings.operation.clean, settings.proxy.outbound_port) for settings in program_runs] == [
        (False, 15002),
        (True, 15002),
    ]


@pytest.mark.parametrize("word", ["--help", "-h"])
@pytest.mark.parametrize("command", PROGRAMS)
def test_help_does_not_run_the_program(
    command: str, word: str, program_runs: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert PROGRAMS[command][0]([command, word]) == 0
    captured = capsys.readouterr()
    assert (program_runs, captured.err, "--log_output_level" in captured.out) == ([], "", True)
    assert captured.out.endswith("\n")


def test_discovery_logs_its_flags(program_runs: list[Any], tmp_path: pathlib.Path) -> None:
    arguments = [
        f"--configDir={tmp_path}",
        "--domain=mesh.example",
        "--log_output_level=default:debug",
        f"--log_target={tmp_path}/log",
    ]
    assert pilot_discovery(["discovery", *arguments]) == 0
    flags = load(arguments, {}).flags
    lines = log_lines(tmp_path / "log")
    assert lines[: len(flags)] == [["debug", f'FLAG: --{name}="{value}"'] for name, value in flags.items()]
    flags_line = f'FLAG: --configDir="{tmp_path}" --domain="mesh.example" --log_output_level="default:debug" --log_target="{tmp_path}/log"'
    assert lines[len(flags) :] == [["info", flags_line]]
    assert (os.environ["GRPC_EXPERIMENTS"], os.environ["GRPC_VERBOSITY"]) == ("-event_engine_listener", "NONE")
    assert len(program_runs) == 1


def test_variables_of_grpc_are_kept(program_runs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "GRPC_EXPERIMENTS", "mine")
    monkeypatch.setitem(os.environ, "GRPC_VERBOSITY", "debug")
    assert pilot_discovery(["discovery"]) == 0
    assert (os.environ["GRPC_EXPERIMENTS"], os.environ["GRPC_VERBOSITY"]) == ("mine", "debug")
    assert len(program_runs) == 1
