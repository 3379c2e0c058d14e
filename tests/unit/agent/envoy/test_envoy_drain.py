"""Draining of Envoy, memory release, and errors of the command line."""

from __future__ import annotations

import mmap
import pathlib
import subprocess
import sys

import pytest

from pilot.agent import agent as agent_run
from pilot.agent.envoy.admin_client import AdminError
from pilot.agent.envoy.envoy_drain import MAX_FAILURES, count_connections, drain, drain_path
from pilot.agent.resident_memory import clean_mappings, release_memory
from pilot.cli import pilot_agent
from testing.processes.process import free_port

pytestmark = pytest.mark.slow


class Envoy:
    """Envoy with prepared connection counts. None stands for no response."""

    def __init__(self, *counts: int | None) -> None:
        self.counts, self.posts, self.sleeps = list(counts), list[str](), list[float]()

    async def post(self, path: str) -> None:
        self.posts.append(path)

    async def stats(self, regex: str) -> dict[str, int]:
        count = self.counts.pop(0)
        if count is None:
            raise AdminError("away")
        return {"listener.0.0.0.0_15006.downstream_cx_active": count}

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)

    async def drain(self, kind: str = "sidecar", until_empty: bool = False) -> None:
        await drain(self, kind, 5.0, 2.0, until_empty, (15021, 15090), self.sleep)


async def test_sidecar_drains_inbound_listeners() -> None:
    envoy = Envoy()
    await envoy.drain()
    assert envoy.posts == ["drain_listeners?inboundonly&graceful&skip_exit"]
    assert envoy.sleeps == [5.0]


def test_gateway_drains_all_listeners() -> None:
    assert drain_path("router") == drain_path("waypoint") == "drain_listeners?graceful&skip_exit"


async def test_drain_until_empty_waits_for_connections() -> None:
    envoy = Envoy(3, 1, None, 0)
    await envoy.drain(until_empty=True)
    assert envoy.counts == []
    assert envoy.sleeps == [2.0, 1.0, 1.0, 1.0]


async def test_drain_gives_up_on_an_unresponsive_envoy() -> None:
    envoy = Envoy(*[None] * MAX_FAILURES)
    await envoy.drain(until_empty=True)
    assert envoy.counts == []


def test_internal_connections_are_excluded() -> None:
    stats = {
        "listener.0.0.0.0_15006.downstream_cx_active": 2,
        "listener.0.0.0.0_15006.worker_0.downstream_cx_active": 2,
        "listener.10.0.0.1_8443.downstream_cx_active": 1,
        "listener.0.0.0.0_15021.downstream_cx_active": 5,
        "listener.0.0.0.0_15090.downstream_cx_active": 5,
        "listener.admin.downstream_cx_active": 5,
        "listener.envoy_internal_connect_originate.downstream_cx_active": 5,
    }
    assert count_connections(stats, (15021, 15090)) == 3


def mapping(perms: str, inode: int, rss: int, anonymous: int = 0, dirty: int = 0, start: int = 0x1000) -> str:
    return (
        f"{start:x}-{start + 0x100000:x} {perms} 00000000 fe:00 {inode} {'/lib/a.so' if inode else ''}\n"
        f"Size: 1024 kB\nRss:  {rss} kB\nPrivate_Dirty: {dirty} kB\nAnonymous: {anonymous} kB\nVmFlags: rd ex\n"
    )


@pytest.mark.parametrize(
    ("text", "is_clean"),
    [
        (mapping("r-xp", 7, 1000), True),
        (mapping("r--p", 7, 1000), True),
        (mapping("rw-p", 7, 1000), False),
        (mapping("r--p", 7, 1000, anonymous=4), False),
        (mapping("r--p", 7, 1000, dirty=4), False),
        (mapping("r-xp", 0, 1000), False),
        (mapping("r-xp", 7, 100), False),
    ],
)
def test_only_clean_file_pages_are_released(text: str, is_clean: bool) -> None:
    assert list(clean_mappings(text)) == ([(0x1000, 0x100000)] if is_clean else [])


def test_released_memory_remains_readable(tmp_path: pathlib.Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:] == content
        release_memory()
        assert mapped[:] == content


@pytest.mark.parametrize(
    ("argv", "status", "text"),
    [
        ([], 2, "pilot-agent: runs Envoy in a pod"),
        (["prox"], 1, "Error: unknown command 'prox' for pilot-agent"),
        (["proxy", "sidecar", "extra"], 1, "Error: unexpected argument 'extra'; pilot-agent proxy --help"),
        (["wait", "--timeoutSeconds", "soon"], 1, "Error: 'soon' is not an integer"),
        (["wait", "now"], 1, "Error: wait: unknown arguments: now"),
        (["wait", "--timeoutSeconds", "0"], 1, "Error: the proxy was not ready within 0 s"),
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
            "Error: ProxyConfig.discoveryAddress: 'istiod' is not host:port",
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
    root, port = str(pathlib.Path(__file__).parents[4]), str(free_port())
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
