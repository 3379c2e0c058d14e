"""The pilot-discovery process: start, errors and end."""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
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
from pilot.ingest.files.file_source import FileSource
from pilot.lib.build_info import build_info
from pilot.settings import Settings
from pilot.settings.declaration import declared
from pilot.settings.document import document
from pilot.settings.parse import load
from testing.processes.process import ControlPlane as ControlPlaneProcess
from testing.processes.process import eventually, free_port

pytestmark = pytest.mark.slow

PROGRAM = pathlib.Path(sys.executable).parent / "pilot-discovery"
ADDRESSES = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")


@pytest.fixture
def occupied_port() -> Iterator[int]:
    """A port that another socket listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def flags(folder: pathlib.Path, **overrides: str) -> list[str]:
    values = {"configDir": str(folder), "ctrlz_port": "0", **dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **overrides}
    return [f"--{name}={value}" for name, value in values.items()]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"configDir": "/nowhere/at/all"}, "--configDir: /nowhere/at/all: No such file or directory"),
        ({"configDir": "confg"}, "/confg: No such file or directory; did you mean config?"),
        ({"configDir": "confg/"}, "/confg: No such file or directory; did you mean config?"),
        ({"meshConfig": "mesh.yml"}, "/mesh.yml: No such file or directory; did you mean mesh.yaml?\n"),
        ({"meshConfig": "mesh.yml"}, "Error: --meshConfig: /"),
        ({"configDir": ""}, "--configDir is required"),
        ({"registries": "Mock"}, "--registries: unknown registry 'Mock', expected Kubernetes"),
        ({"grpcAddr": "15010"}, "invalid argument for --grpcAddr: '15010' is not host:port or :port"),
        ({"httpAddr": "::1:80"}, "invalid argument for --httpAddr"),
        ({"httpAddr": "a:70000"}, "invalid argument for --httpAddr"),
        ({"ctrlz_port": "70000"}, "invalid argument for --ctrlz_port: 70000 is not a port"),
        ({"shutdownDuration": "soon"}, "invalid argument for --shutdownDuration"),
        ({"clusterAliases": "a=one,b=one"}, "cluster 'one' has more than one alias"),
        ({"clusterAliases": "one"}, "'one' is not alias=cluster"),
        ({"log_output_level": "loud"}, "--log_output_level: 'loud' is not a log level"),
    ],
)
def test_start_errors(
    overrides: dict[str, str],
    text: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "mesh.yaml").touch()
    assert main(["discovery", *flags(tmp_path, **overrides)]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("flag", ADDRESSES)
def test_occupied_port_aborts_the_start(flag: str, occupied_port: int, tmp_path: pathlib.Path) -> None:
    result = run("discovery", *flags(tmp_path, **{flag: f"127.0.0.1:{occupied_port}"}))
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1].startswith(f"Error: cannot listen on 127.0.0.1:{occupied_port}")


def test_process_logs_flags_serves_and_ends_on_sigterm(tmp_path: pathlib.Path) -> None:
    http = free_port()
    arguments = flags(
        tmp_path,
        httpAddr=f"127.0.0.1:{http}",
        secureGRPCAddr="",
        plugins="0",
        context="prod",
        log_output_level="adss:info",
    )
    process = subprocess.Popen([PROGRAM, "discovery", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "ready" in line:
            break
    (flag_line,) = (line for line in lines if "\tinfo\tFLAG: " in line)
    assert f' --httpAddr="127.0.0.1:{http}"' in flag_line
    assert "--domain" not in flag_line  # defaults are not logged
    assert any("unknown flag --plugins has no effect" in line for line in lines)
    assert any("--context has no effect without --kubeconfig" in line for line in lines)
    assert any("log scope 'adss' does not exist; did you mean ads?" in line for line in lines)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_blocked_log_reader_does_not_block_the_process(tmp_path: pathlib.Path) -> None:
    http, monitoring = free_port(), free_port()
    entry = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "ServiceEntry",
        "metadata": {"name": "wrong", "namespace": "shop"},
    }
    for file in range(180):  # lines of 1 KB, more than the pipe and the queue can hold
        fields = {f"field-{number}-{'x' * 1000}": 1 for number in range(99)}
        (tmp_path / f"{file}.json").write_text(json.dumps({**entry, "spec": {"hosts": "a string", **fields}}))
    arguments = flags(tmp_path, httpAddr=f"127.0.0.1:{http}", monitoringAddr=f"127.0.0.1:{monitoring}")
    process = subprocess.Popen([PROGRAM, "discovery", *arguments], stdout=subprocess.PIPE)

    def ready() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/ready") as response:
            return bool(response.status == 200)

    try:
        eventually(ready, 120, "ready while its log is not read")
        with urllib.request.urlopen(f"http://127.0.0.1:{monitoring}/metrics") as response:
            metric = re.search(r"^pilot_log_lines_dropped (\S+)$", response.read().decode(), re.MULTILINE)
    finally:
        process.terminate()
        log, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert metric is not None
    dropped = sum(int(count) for count in re.findall(rb"dropped (\d+) log lines", log))
    assert dropped >= int(metric[1]) > 100
    others = dropped + len(re.findall(rb"unknown-field|wrong-type", log)) - 180 * 100
    assert 0 <= others < 20  # dropped lines that report no problem


def address_of(plane: ControlPlane, port: str) -> str:
    return f"127.0.0.1:{plane.ports[port].number}"


async def status(address: str, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        if response.status in (200, 503) and path == "/ready":
            assert await response.read() == b""
        return response.status


async def test_readiness_waits_for_the_initial_load(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading, resume = asyncio.Event(), threading.Event()
    loop, load_initial = asyncio.get_running_loop(), FileSource.load_initial

    def load_slowly(source: FileSource) -> int:
        loop.call_soon_threadsafe(loading.set)
        assert resume.wait(30)
        return load_initial(source)

    monkeypatch.setattr(FileSource, "load_initial", load_slowly)
    plane = ControlPlane(load(flags(tmp_path), {}).settings)
    running = asyncio.create_task(plane.run())
    await loading.wait()
    assert await status(address_of(plane, "HTTP"), "/ready") == 503
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", plane.ports["xDS"].number)), (
            "the xDS port opens when the process is ready"
        )
    resume.set()
    async with asyncio.timeout(30):
        while await status(address_of(plane, "HTTP"), "/ready") != 200:
            await asyncio.sleep(0.01)
    assert await status(address_of(plane, "monitoring"), "/metrics") == 200
    assert await status(address_of(plane, "monitoring"), "/version") == 200
    assert await status(address_of(plane, "HTTP"), "/debug/adsz") == 200
    assert await status(address_of(plane, "monitoring"), "/ready") == 404
    plane.end()
    async with asyncio.timeout(30):
        await running
    with pytest.raises(OSError, match="onnect"):
        await status(address_of(plane, "HTTP"), "/ready")


async def test_http_port_serves_metrics_and_debug_pages(tmp_path: pathlib.Path) -> None:
    plane = ControlPlane(load(flags(tmp_path, monitoringAddr="", grpcAddr=""), {}).settings)
    running = asyncio.create_task(plane.run())
    async with asyncio.timeout(30):
        while not plane.ready:
            await asyncio.sleep(0.01)
    assert [await status(address_of(plane, "HTTP"), path) for path in ("/ready", "/metrics", "/debug/adsz")] == [
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
    assert capsys.readouterr().err == (
        "Error: request takes METHOD PATH [BODY], for example: pilot-discovery request GET debug/syncz\n"
    )


def test_request_without_a_control_plane_says_where_to_run_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilot.cli.pilot_discovery.MONITORING", "http://127.0.0.1:1")
    assert main(["request", "GET", "debug/syncz"]) == 1
    assert capsys.readouterr().err == (
        "Error: GET http://127.0.0.1:1/debug/syncz: connection refused; run this where pilot-discovery runs with its "
        "default --monitoringAddr, for example after kubectl exec; pilotctl --address URL reads another one\n"
    )


@pytest.mark.parametrize("path", ["debug/with a blank", "debug/caf\udce9", "debug/\nHost: other"])
def test_invalid_request_is_one_sentence(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["request", "GET", path]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("ulimit -n 20", "only 20 files may be open at once"),
        ("ulimit -n 8", "only 8 files may be open at once"),
        ("ulimit -v 204800", "the address space is limited to 200 MB"),
    ],
)
def test_low_resource_limit_is_one_sentence(limit: str, sentence: str, tmp_path: pathlib.Path) -> None:
    # Lowered by a shell: code of Python's between fork and exec would wake the gRPC of this process in the child.
    command = ["/bin/sh", "-c", f'{limit}; exec "$0" "$@"', PROGRAM, "discovery", *flags(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr
    assert result.stderr.startswith(f"Error: {sentence}")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "Error: not enough memory\n"),
        (OSError(24, "Too many open files"), "Error: cannot start: Too many open files\n"),
        (RuntimeError("can't start new thread"), "Error: cannot start: can't start new thread\n"),
    ],
)
def test_system_error_at_start_is_one_sentence(
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


def test_unexpected_error_is_raised(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "run", lambda settings: {}["bug"])
    with pytest.raises(KeyError):
        main(["discovery", *flags(tmp_path)])


def test_missing_command_prints_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 2
    assert "pilot-discovery discovery --configDir=DIR" in captured.err


def test_invalid_arguments_point_to_help(capsys: pytest.CaptureFixture[str]) -> None:
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
def test_help_lists_flags_by_section(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discovery", "--domain=x", word]) == 0
    sections = {part.partition("\n")[0]: part for part in capsys.readouterr().out.split("\n\n")}
    for declaration in declared(Settings()):
        matches = [
            title
            for title, text in sections.items()
            if f"--{declaration.flag} " in text or f"--{declaration.flag}," in text or f"--{declaration.flag}\n" in text
        ]
        assert matches == ([declaration.title] if declaration.flag else []) or declaration.flag == "configDir", (
            declaration.flag
        )
    assert (
        "--namespace, -n TEXT\n        Namespace of the control plane. (default istio-system;"
        in sections["Services and workloads"]
    )
    assert "--log_as_json\n" in sections["Logs"]
    assert "--keepaliveTimeout DURATION" in sections["xDS server"]


def test_flood_of_invalid_headers_writes_no_log(tmp_path: pathlib.Path) -> None:
    """gRPC would write a line for each."""
    (tmp_path / "config").mkdir()
    plane = ControlPlaneProcess(tmp_path, tmp_path / "config")
    try:
        plane.wait_ready()
        before = plane.log.stat().st_size
        block = b"\x02\x01x" * 5000  # the header :method with the value x, without an entry of the table
        start, headers = bytes(3) + b"\x04\x00" + bytes(4), len(block).to_bytes(3) + b"\x01\x04\x00\x00\x00\x01"
        ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00the end."
        with socket.create_connection(("127.0.0.1", plane.ports["grpcAddr"]), timeout=20) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + start + headers + block + ping)
            received = b""
            while b"the end." not in received and (data := connection.recv(1 << 16)):
                received += data
        assert plane.log.stat().st_size - before < 10_000
    finally:
        plane.stop()
