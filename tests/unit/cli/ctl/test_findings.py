"""Findings of `problems` and `analyze`: their order, format and suppression."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import pytest

from pilot.cli.pilotctl import main
from tests.unit.cli.ctl.conftest import Run
from tests.unit.cli.ctl.test_output import terminal

ISTIO = {"group": "networking.istio.io", "namespace": "shop"}
PORT: dict[str, Any] = ISTIO | {
    "severity": "info",
    "code": "port-not-said",
    "kind": "VirtualService",
    "name": "web",
    "message": "many ports",
}
ROUTE = PORT | {
    "severity": "warning",
    "code": "destination-not-found",
    "message": "no tea",
    "file": "a.yaml",
    "line": 3,
}
FIELD = PORT | {"severity": "error", "code": "bad-port", "name": "tea", "path": "spec.http[0]", "message": "port 0"}
GATEWAY = PORT | {
    "severity": "warning",
    "code": "no-effect",
    "group": "gateway.networking.k8s.io",
    "kind": "Gateway",
    "name": "edge",
    "namespace": "far",
    "message": "no class",
}
LINES = {
    "port": "Info [IST0112 port-not-said] (VirtualService shop/web) many ports",
    "route": "Warning [IST0101 destination-not-found] (VirtualService shop/web a.yaml:3) no tea",
    "field": "Error [IST0106 bad-port] (VirtualService shop/tea) spec.http[0]: port 0",
    "gateway": "Warning [no-effect] (gateway.networking.k8s.io/Gateway far/edge) no class",
}


@pytest.fixture(autouse=True)
def findings(pages: dict[str, Any]) -> None:
    pages["problemz"] = [PORT, ROUTE, FIELD, GATEWAY]


def listed(out: str) -> list[str]:
    return [name for line in out.splitlines() for name, text in LINES.items() if line == text]


@pytest.mark.parametrize(("command", "status"), [("problems", 0), ("analyze", 79)])
def test_worst_findings_come_first_in_one_format(run: Run, command: str, status: int) -> None:
    assert run(command, "--output-threshold", "info", status=status).splitlines()[:5] == [
        *(LINES[name] for name in ("field", "gateway", "route", "port")),
        "1 error, 2 warnings, 1 for information.",
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-A",), ["field", "gateway", "route"]),
        (("-n", "far"), ["gateway"]),
        (("--output-threshold", "info"), ["field", "gateway", "route", "port"]),
        (("--output-threshold", "error"), ["field"]),
        (("--suppress", "IST0101=VirtualService/web"), ["field", "gateway"]),
        (("--suppress", "destination-not-found=virtualservice/shop/w*"), ["field", "gateway"]),
        (("-S", "IST0101=VirtualService web.shop", "-S", "no-effect=*/far/*"), ["field"]),
        (("-S", "IST0106=VirtualService *.shop"), ["gateway", "route"]),
        (("-S", "IST0101=VirtualService/far/web"), ["field", "gateway", "route"]),
    ],
)
def test_findings_are_selected(run: Run, words: tuple[str, ...], expected: list[str]) -> None:
    assert listed(run("problems", *words)) == expected


def test_suppressed_finding_does_not_fail_the_analysis(run: Run) -> None:
    run("analyze", "--suppress", "bad-port=*/*", status=0)
    run("analyze", "--suppress", "bad-port=*/*", "--failure-threshold", "warning", status=79)
    run("analyze", "--suppress", "bad-port=*/*", "--failure-threshold", "warning", "-n", "calm", status=0)


def test_findings_below_the_threshold_are_counted(run: Run) -> None:
    assert run("problems").endswith(
        "\n1 error, 2 warnings.\nNot listed: 1 for information (--output-threshold info lists them).\n"
    )
    assert run("problems", "-n", "far", "--output-threshold", "error") == (
        "Not listed: 1 warning (--output-threshold warning lists them).\n"
    )


def test_information_is_no_problem(run: Run, pages: dict[str, Any]) -> None:
    pages["problemz"] = [PORT]
    assert run("problems") == "No problems.\nNot listed: 1 for information (--output-threshold info lists them).\n"


def test_suppression_without_effect_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "-S", "IST0101=VirtualService/gone", "-S", "no-effect=*/*"]) == 0
    assert capsys.readouterr().err == "--suppress IST0101=VirtualService/gone matches no finding\n"


@pytest.mark.parametrize(
    "text", ["IST0101", "=VirtualService/web", "IST0101=VirtualService", "IST0101=VirtualService/"]
)
def test_incomplete_suppression_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "-S", text]) == 2
    assert "expected CODE=KIND/NAME, such as IST0101=VirtualService/shop/web" in capsys.readouterr().err


def test_a_namespace_excludes_all_namespaces(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "-A", "-n", "shop"]) == 2
    assert "--namespace and --all-namespaces are mutually exclusive" in capsys.readouterr().err


def test_json_has_the_code_of_istioctl(run: Run) -> None:
    value = json.loads(run("problems", "-n", "far", "-o", "json"))
    assert [(f["code"], f.get("istioCode")) for f in value] == [("no-effect", None)]
    value = json.loads(run("problems", "--output-threshold", "error", "-o", "json"))
    assert [(f["code"], f.get("istioCode")) for f in value] == [("bad-port", "IST0106")]


@pytest.mark.parametrize(
    ("no_color", "start"), [("", "\x1b[1;31mError\x1b[0m [IST0106"), ("1", "\x1b[1mError\x1b[0m [IST0106")]
)
def test_severities_are_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch, no_color: str, start: str) -> None:
    screen = terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", no_color)
    assert main(["problems"]) == 0
    assert screen.getvalue().startswith(start)
    assert sys.stdout is screen


def test_files_below_the_working_directory_have_relative_names(
    run: Run, pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.chdir(tmp_path)
    pages["problemz"] = [ROUTE | {"file": f"{tmp_path}/mesh/a.yaml"}, ROUTE | {"file": f"{tmp_path}2/a.yaml"}]
    out = run("problems")
    assert "shop/web mesh/a.yaml:3)" in out
    assert f"shop/web {tmp_path}2/a.yaml:3)" in out


def test_sample_mesh_has_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    folder = pathlib.Path(__file__).resolve().parents[4] / "samples" / "shop" / "config"
    assert main(["analyze", str(folder)]) == 0
    assert "No validation issues found" in capsys.readouterr().out
