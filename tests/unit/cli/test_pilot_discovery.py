"""The process: how it starts, what it says when it cannot, and how it ends."""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator

import aiohttp
import pytest

from pilot import bootstrap as app
from pilot.bootstrap import ControlPlane
from pilot.cli.pilot_discovery import main
from pilot.cli.resources import claim_resources
from pilot.ingest.file_source import FileSource
from pilot.lib.build_info import build_info
from pilot.settings import Settings
from pilot.settings.declaration import declared
from pilot.settings.document import document
from pilot.settings.parse import load
from testing.processes.process import eventually, free_port

pytestmark = pytest.mark.slow

PROGRAM = pathlib.Path(sys.executable).parent / "pilot-discovery"
ADDRESSES = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def flags(folder: pathlib.Path, **changed: str) -> list[str]:
    given = {"configDir": str(folder), "ctrlz_port": "0", **dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **changed}
    return [f"--{name}={value}" for name, value in given.items()]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"configDir": "/nowhere/at/all"}, "--configDir: /nowhere/at/all: No such file or directory"),
        ({"configDir": ""}, "--configDir is required"),
        ({"registries": "Mock"}, "--registries: unknown registry 'Mock', expected Kubernetes"),
        ({"grpcAddr": "15010"}, "invalid argument for --grpcAddr: '15010' is not host:port or :port"),
        ({"httpAddr": "::1:80"}, "invalid argument for --httpAddr"),
        ({"httpAddr": "a:70000"}, "invalid argument for --httpAddr"),
        ({"ctrlz_port": "70000"}, "invalid argument for --ctrlz_port: 70000 is not a port"),
        ({"shutdownDuration": "soon"}, "invalid argument for --shutdownDuration"),
        ({"clusterAliases": "a=one,b=one"}, "cluster 'one' has more than one alias"),
        ({"clusterAliases": "one"}, "'one' is not alias=cluster"),
        ({"log_output_level": "loud"}, "logging: 'loud' is not a log level"),
    ],
)
def test_what_keeps_it_from_starting(
    changed: dict[str, str], text: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["discovery", *flags(tmp_path, **changed)]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("flag", ADDRESSES)
def test_a_port_that_is_in_use(flag: str, taken: int, tmp_path: pathlib.Path) -> None:
    ended = run("discovery", *flags(tmp_path, **{flag: f"127.0.0.1:{taken}"}))
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines()[-1].startswith(f"Error: cannot listen on 127.0.0.1:{taken}")


def test_it_logs_its_flags_serves_and_ends_on_a_signal(tmp_path: pathlib.Path) -> None:
    http = free_port()
    given = flags(tmp_path, httpAddr=f"127.0.0.1:{http}", secureGRPCAddr="", plugins="0")
    process = subprocess.Popen([PROGRAM, "discovery", *given], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "ready" in line:
            break
    (told,) = (line for line in lines if "\tinfo\tFLAG: " in line)
    assert f' --httpAddr="127.0.0.1:{http}"' in told
    assert "--domain" not in told  # it has its default
    assert any("--plugins is not known and has no effect" in line for line in lines)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_reader_of_the_log_who_stops_stops_no_process_and_what_is_lost_is_counted(tmp_path: pathlib.Path) -> None:
    http, monitoring = free_port(), free_port()
    entry = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "ServiceEntry",
        "metadata": {"name": "wrong", "namespace": "shop"},
    }
    for file in range(180):  # lines of 1 KB: more than the pipe, what waits and what is being written can hold
        fields = {f"field-{number}-{'x' * 1000}": 1 for number in range(100)}
        (tmp_path / f"{file}.json").write_text(json.dumps({**entry, "spec": fields}))
    given = flags(tmp_path, httpAddr=f"127.0.0.1:{http}", monitoringAddr=f"127.0.0.1:{monitoring}")
    process = subprocess.Popen([PROGRAM, "discovery", *given], stdout=subprocess.PIPE)

    def ready() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/ready") as answer:
            return bool(answer.status == 200)

    try:
        eventually(ready, 120, "ready although nobody reads its log")
        with urllib.request.urlopen(f"http://127.0.0.1:{monitoring}/metrics") as answer:
            counted = re.search(r"^pilot_log_lines_dropped (\S+)$", answer.read().decode(), re.MULTILINE)
    finally:
        process.terminate()
        log, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert counted is not None
    told = sum(int(count) for count in re.findall(rb"dropped (\d+) log lines", log))
    assert told >= int(counted[1]) > 100
    assert told + len(re.findall(rb"unknown-field", log)) == 180 * 100


def where(plane: ControlPlane, port: str) -> str:
    return f"127.0.0.1:{plane.ports[port].number}"


async def status(address: str, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        if response.status in (200, 503) and path == "/ready":
            assert await response.read() == b""
        return response.status


async def test_ready_only_when_everything_is_loaded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading, go_on = asyncio.Event(), threading.Event()
    loop, load_initial = asyncio.get_running_loop(), FileSource.load_initial

    def slow(source: FileSource) -> int:
        loop.call_soon_threadsafe(loading.set)
        assert go_on.wait(30)
        return load_initial(source)

    monkeypatch.setattr(FileSource, "load_initial", slow)
    plane = ControlPlane(load(flags(tmp_path), {}).settings)
    running = asyncio.create_task(plane.run())
    await loading.wait()
    assert await status(where(plane, "HTTP"), "/ready") == 503
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", plane.ports["xDS"].number)), "xDS listens when it is ready"
    go_on.set()
    async with asyncio.timeout(30):
        while await status(where(plane, "HTTP"), "/ready") != 200:
            await asyncio.sleep(0.01)
    assert await status(where(plane, "monitoring"), "/metrics") == 200
    assert await status(where(plane, "monitoring"), "/version") == 200
    assert await status(where(plane, "HTTP"), "/debug/adsz") == 200
    assert await status(where(plane, "monitoring"), "/ready") == 404
    plane.end()
    async with asyncio.timeout(30):
        await running
    with pytest.raises(OSError, match="onnect"):
        await status(where(plane, "HTTP"), "/ready")


async def test_one_port_for_all_of_http(tmp_path: pathlib.Path) -> None:
    plane = ControlPlane(load(flags(tmp_path, monitoringAddr="", grpcAddr=""), {}).settings)
    running = asyncio.create_task(plane.run())
    async with asyncio.timeout(30):
        while not plane.ready:
            await asyncio.sleep(0.01)
    assert [await status(where(plane, "HTTP"), path) for path in ("/ready", "/metrics", "/debug/adsz")] == [
        200,
        200,
        200,
    ]
    plane.end()
    async with asyncio.timeout(30):
        await running


def test_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.strip() == str(build_info())
    assert main(["collateral"]) == 0
    assert capsys.readouterr().out == document()
    for word in ("help", "--help", "-h"):
        assert main([word]) == 0
        assert "pilot-discovery discovery" in capsys.readouterr().out
    assert main(["request", "GET"]) == 1
    assert capsys.readouterr().err == "Error: request takes METHOD PATH [BODY]\n"


@pytest.mark.parametrize("path", ["debug/with a blank", "debug/caf\udce9", "debug/\nHost: other"])
def test_a_request_that_makes_no_sense_is_one_sentence(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["request", "GET", path]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("lower", "sentence"),
    [
        ("ulimit -n 20", "only 20 files may be open at once"),
        ("ulimit -n 8", "only 8 files may be open at once"),
        ("ulimit -v 204800", "the address space is limited to 200 MB"),
    ],
)
def test_too_little_at_start_is_one_sentence(lower: str, sentence: str, tmp_path: pathlib.Path) -> None:
    # Lowered by a shell: code of Python's between fork and exec would wake the gRPC of this process in the child.
    command = ["/bin/sh", "-c", f'{lower}; exec "$0" "$@"', PROGRAM, "discovery", *flags(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert ended.stderr.startswith(f"Error: {sentence}")


def test_open_files_are_allowed_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (100, 5000) if which == resource.RLIMIT_NOFILE else (-1, -1)
    )
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: asked.append((which, pair)))
    claim_resources()
    assert asked == [(resource.RLIMIT_NOFILE, (5000, 5000))]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "Error: not enough memory\n"),
        (OSError(24, "Too many open files"), "Error: cannot start: Too many open files\n"),
        (RuntimeError("can't start new thread"), "Error: cannot start: can't start new thread\n"),
    ],
)
def test_what_the_system_does_not_grant_is_one_sentence(
    error: Exception,
    sentence: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(settings: Settings) -> None:
        raise error

    monkeypatch.setattr(app, "run", fail)
    assert main(["discovery", *flags(tmp_path)]) == 1
    assert capsys.readouterr().err == sentence


def test_a_bug_is_no_sentence(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "run", lambda settings: {}["bug"])
    with pytest.raises(KeyError):
        main(["discovery", *flags(tmp_path)])


def test_without_a_command_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 2
    assert "pilot-discovery discovery --configDir=DIR" in shown.err


def test_a_wrong_command_or_argument_says_in_a_sentence_where_help_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve\n"]) == 1
    assert (
        capsys.readouterr().err
        == "Error: unknown command 'serve\\n' for pilot-discovery; pilot-discovery --help lists the commands\n"
    )
    assert main(["discovery", "extra"]) == 1
    assert (
        capsys.readouterr().err
        == "Error: unexpected argument 'extra'; pilot-discovery discovery --help shows its usage\n"
    )
    assert main(["discovery", "--httpAddr"]) == 1
    assert (
        capsys.readouterr().err
        == "Error: flag needs an argument: --httpAddr; pilot-discovery discovery --help shows its usage\n"
    )


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_lists_the_flags_by_section(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discovery", "--domain=x", word]) == 0
    sections = {part.partition("\n")[0]: part for part in capsys.readouterr().out.split("\n\n")}
    for s in declared(Settings()):
        shown = [
            title
            for title, text in sections.items()
            if f"--{s.flag} " in text or f"--{s.flag}," in text or f"--{s.flag}\n" in text
        ]
        assert shown == ([s.title] if s.flag else []) or s.flag == "configDir", s.flag
    assert (
        "--namespace, -n TEXT\n        Namespace of the control plane. (default istio-system;"
        in sections["Services and workloads"]
    )
    assert "--log_as_json\n" in sections["Logs"]
    assert "--keepaliveTimeout DURATION" in sections["xDS server"]
