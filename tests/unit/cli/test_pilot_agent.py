"""Commands of pilot-agent: arguments, help and errors."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from pilot.agent import agent as agent_run
from pilot.cli import pilot_agent
from pilot.cli.pilot_agent import main
from testing.processes.process import free_port


def test_command_errors_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["istio-iptables", "-b", "x"]) == 1
    assert capsys.readouterr().err == "Error: invalid argument for --istio-inbound-ports: 'x' is not a port\n"
    assert main(["istio-clean-iptables", "--help"]) == 0
    assert "--istio-inbound-interception-mode, -m TEXT" in capsys.readouterr().out


pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("argv", "status", "text"),
    [
        ([], 2, "pilot-agent: runs Envoy in a pod"),
        (["prox"], 1, "Error: unknown command 'prox' for pilot-agent"),
        (["proxy", "sidecar", "extra"], 1, "Error: unexpected argument 'extra'; pilot-agent proxy --help"),
        (["wait", "--timeoutSeconds", "soon"], 1, "Error: wait: --timeoutSeconds: 'soon' is not an integer"),
        (["wait", "now"], 1, "Error: wait: unknown arguments: now"),
        (["wait", "--timeoutSeconds", "0"], 1, "Error: wait: --timeoutSeconds: 0 is not between 1 and 86400000"),
        (["request", "GET"], 1, "Error: request takes METHOD PATH"),
        (["request", "GET", "stats", "--debug-port", "1"], 1, "Error: GET http://localhost:1/stats: "),
    ],
)
def test_command_line_errors(argv: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pilot_agent.main(argv) == status
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--help", "-h"])
@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (
            "wait",
            """\
pilot-agent wait: wait until the local proxy is ready

  pilot-agent wait [--timeoutSeconds 60] [--requestTimeoutMillis 500] [--periodMillis 500] [--url http://localhost:15021/healthz/ready]
""",
        ),
        (
            "request",
            """\
pilot-agent request: send a request to Envoy's admin port

  pilot-agent request METHOD PATH [--debug-port 15000]
""",
        ),
    ],
)
def test_command_help(command: str, word: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pilot_agent.main([command, word]) == 0
    assert capsys.readouterr() == (usage, "")


@pytest.mark.parametrize(
    ("argv", "kind"),
    [([], "sidecar"), (["router"], "router"), (["--concurrency", "3"], "sidecar"), (["waypoint"], "waypoint")],
)
def test_first_argument_is_the_proxy_type(monkeypatch: pytest.MonkeyPatch, argv: list[str], kind: str) -> None:
    kinds = list[str]()
    monkeypatch.setattr(agent_run, "run", lambda kind, settings, environ: kinds.append(kind) or 0)
    assert pilot_agent.main(["proxy", *argv]) == 0
    assert kinds == [kind]


@pytest.mark.parametrize("argv", [["--help"], ["proxy", "--help"], ["version"], ["collateral"]])
def test_help_is_printed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert pilot_agent.main(argv) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"PROXY_CONFIG": "{}", "INSTANCE_IP": "x"}, "Error: variable INSTANCE_IP: 'x' is not an IP address"),
        (
            {"PROXY_CONFIG": '{"discoveryAddress": "istiod"}'},
            "Error: variable PROXY_CONFIG: discoveryAddress: 'istiod' is not host:port",
        ),
        (
            {"PROXY_CONFIG": '{"discoveryAddress": "https://istiod.a:15012"}'},
            "Error: variable PROXY_CONFIG: discoveryAddress: 'https://istiod.a:15012' has a scheme; write istiod.a:15012",
        ),
        (
            {"CA_ADDR": "https://istiod.a:15012/"},
            "Error: variable CA_ADDR: 'https://istiod.a:15012/' has a scheme; write istiod.a:15012",
        ),
        ({"CA_ADDR": "istiod"}, "Error: variable CA_ADDR: 'istiod' is not host:port"),
        (
            {"PROXY_CONFIG": '{"binaryPath": "/no/envoy", "statusPort": PORT}'},
            "Error: cannot start Envoy: /no/envoy: No such file",
        ),
        ({"DNS_PROXY_ADDR": "localhost"}, "Error: variable DNS_PROXY_ADDR: 'localhost' is not host:port"),
        ({"ISTIO_KUBE_APP_PROBERS": "{"}, "Error: variable ISTIO_KUBE_APP_PROBERS is not JSON"),
        ({"ECC_SIGNATURE_ALGORITHM": "DSA"}, "Error: ECC_SIGNATURE_ALGORITHM: unknown algorithm 'DSA'"),
    ],
)
def test_start_failure_is_one_sentence(environ: dict[str, str], text: str, tmp_path: pathlib.Path) -> None:
    root, port = str(pathlib.Path(__file__).parents[3]), str(free_port())
    environ = {name: value.replace("PORT", port) for name, value in environ.items()}
    command = [sys.executable, "-m", "pilot.cli.pilot_agent", "proxy", "sidecar", "--log_output_level", "all:none"]
    result = subprocess.run(
        command,
        env={"PYTHONPATH": root, "INSTANCE_IP": "127.0.0.1", **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert text in result.stderr
    assert "Traceback" not in result.stderr
