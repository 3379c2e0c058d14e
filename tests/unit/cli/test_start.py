"""What programs make of their flags before they begin: levels of logs, warnings, and the settings that they run with."""

from __future__ import annotations

import logging
import os
import pathlib
import resource
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from pilot.cli.pilot_agent import main as pilot_agent
from pilot.cli.pilot_discovery import main as pilot_discovery
from pilot.cli.pilot_operator import main as pilot_operator
from pilot.cli.resources import claim_resources
from pilot.lib import log
from pilot.lib.start_error import StartError
from pilot.settings.parse import load

Main = Callable[[list[str]], int]
PROGRAMS: dict[str, tuple[Main, str, str]] = {
    "istio-iptables": (pilot_agent, "pilot.agent.capture.istio_iptables", "ENVOY_PORT"),
    "istio-clean-iptables": (pilot_agent, "pilot.agent.capture.istio_iptables", "ENVOY_PORT"),
    "discovery": (pilot_discovery, "pilot.bootstrap", "PILOT_DEBOUNCE_MAX"),
    "server": (pilot_operator, "pilot.operator.operator_process", "RENEW_DEADLINE"),
}


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"WATCH_NAMESPACE": "one", "HOME": "/nowhere"})


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings that programs ran with."""
    found: list[Any] = []

    def run(settings: Any, *_: Any) -> int:
        found.append(settings)
        return 0

    for _, module, _ in PROGRAMS.values():
        monkeypatch.setattr(import_module(module), "run", run)
    return found


def logged(path: pathlib.Path) -> list[list[str]]:
    """The level and the text of each line of a log."""
    for handler in log.scope("default").handlers:
        handler.flush()
    return [line.split("\t")[1:] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("command", PROGRAMS)
def test_the_log_is_opened_before_a_wrong_variable_is_warned_of(
    command: str,
    ran: list[Any],
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
    (warning,) = [text for level, text in logged(tmp_path / "log") if level == "warn"]
    assert warning.startswith(f"environment variable {variable} is ignored: ")
    assert len(ran) == 1
    assert main([command, "--log_output_level=loud"]) == 1
    assert "logging: 'loud' is not a log level" in capsys.readouterr().err
    assert len(ran) == 1


def test_rules_are_put_or_taken_away(ran: list[Any]) -> None:
    always = ["--reconcile", "--force-apply=true", "-p", "15002"]
    assert [pilot_agent([command, *always]) for command in ("istio-iptables", "istio-clean-iptables")] == [0, 0]
    assert [(settings.operation.clean, settings.proxy.outbound_port) for settings in ran] == [
        (False, 15002),
        (True, 15002),
    ]


@pytest.mark.parametrize("word", ["--help", "-h"])
@pytest.mark.parametrize("command", PROGRAMS)
def test_help_runs_nothing(command: str, word: str, ran: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAMS[command][0]([command, word]) == 0
    shown = capsys.readouterr()
    assert (ran, shown.err, "--log_output_level" in shown.out) == ([], "", True)
    assert shown.out.endswith("\n")


def test_discovery_logs_all_flags_where_asked_and_those_that_were_given_always(
    ran: list[Any], tmp_path: pathlib.Path
) -> None:
    given = [
        f"--configDir={tmp_path}",
        "--domain=mesh.example",
        "--log_output_level=default:debug",
        f"--log_target={tmp_path}/log",
    ]
    assert pilot_discovery(["discovery", *given]) == 0
    flags = load(given, {}).flags
    said = logged(tmp_path / "log")
    assert said[: len(flags)] == [["debug", f'FLAG: --{name}="{value}"'] for name, value in flags.items()]
    shown = f'FLAG: --configDir="{tmp_path}" --domain="mesh.example" --log_output_level="default:debug" --log_target="{tmp_path}/log"'
    assert said[len(flags) :] == [["info", shown]]
    assert os.environ["GRPC_EXPERIMENTS"] == "-event_engine_listener"
    assert len(ran) == 1


def test_what_the_user_says_of_experiments_of_grpc_stays(ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "GRPC_EXPERIMENTS", "mine")
    assert pilot_discovery(["discovery"]) == 0
    assert (os.environ["GRPC_EXPERIMENTS"], len(ran)) == ("mine", 1)


def test_an_operator_that_the_system_grants_too_little_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(import_module("pilot.operator.operator_process"), "run", run)
    assert pilot_operator(["server"]) == 1
    assert capsys.readouterr().err == "Error: cannot start: Too many open files\n"


@pytest.mark.parametrize(
    ("files", "space", "why"),
    [
        (64, resource.RLIM_INFINITY, ""),
        (
            63,
            resource.RLIM_INFINITY,
            "only 63 files may be open at once, and each proxy needs one: allow at least 64 (ulimit -n)",
        ),
        (resource.RLIM_INFINITY, 512 << 20, ""),
        (1000, (512 << 20) - 1, "the address space is limited to 511 MB: allow at least 512 MB (ulimit -v)"),
    ],
)
def test_what_the_system_must_grant(files: int, space: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_NOFILE: (files, files), resource.RLIMIT_AS: (space, space)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("nothing is to be raised"))
    if why:
        with pytest.raises(StartError) as raised:
            claim_resources()
        assert str(raised.value) == why
    else:
        claim_resources()
