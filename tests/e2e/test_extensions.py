"""Lua scripts and Wasm modules in a stock Envoy, with modules fetched by the agent, and their failure policies."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import yaml

from testing.mesh.objects import Plain, make
from testing.mesh.wasm_module import HEADER, module
from testing.processes.process import ControlPlane, eventually, free_port
from testing.processes.sidecar import Sidecar
from testing.security import certificates
from testing.security.certificates import DAY, write_plugged_in
from testing.security.credentials import data_secret
from testing.security.tokens import write_keys
from testing.servers.backends import send_request
from testing.servers.image_registry import Registry, Reply, archive

LUA = "function envoy_on_response(handle) handle:headers():add('x-lua', 'added') end"
FAILING_LUA = "function envoy_on_request(handle) handle:nothing() end"


class Edge:
    """A gateway that answers all requests with a direct response."""

    def __init__(self, work: pathlib.Path, stack: contextlib.ExitStack) -> None:
        self.folder = work / "config"
        self.folder.mkdir()
        self.registry = Registry("lab:secret")
        stack.callback(self.registry.stop)
        self._publish()
        self.port = free_port()
        (self.folder / "base.yaml").write_text(yaml.safe_dump_all(self._base()))
        root, authority = certificates.root(lifetime=3650 * DAY), work / "cacerts"
        authority.mkdir()
        write_plugged_in(authority, certificates.intermediate(root, 1, 3000 * DAY))
        more = ["--tokenKeys", str(write_keys(work / "jwks.json"))]
        plane = ControlPlane(work, self.folder, more=more, environ={"ROOT_CA_DIR": str(authority)})
        stack.callback(plane.stop)
        plane.wait_ready()
        ports = {"ENVOY_STATUS_PORT": str(free_port()), "ENVOY_PROMETHEUS_PORT": str(free_port())}
        wasm_settings = {"WASM_INSECURE_REGISTRIES": self.registry.host, "ALLOWED_CIDRS_IN_WASM_FETCH": "127.0.0.0/8"}
        config = {"statusPort": free_port(), "proxyAdminPort": free_port()}
        environ = {**ports, **wasm_settings, "ISTIO_META_UNPRIVILEGED_POD": "true"}
        self.agent = Sidecar(
            work / "edge",
            "edge",
            "127.0.0.1",
            plane.secure_xds,
            root.roots_pem,
            config=config,
            environ=environ,
            kind="router",
        )
        stack.callback(self.agent.stop)
        self._work, self._round = work, 0

    def _publish(self) -> None:
        for name in ("added", "other"):  # separate images, because a cached one needs no login
            self.registry.push(f"lab/{name}", "1", archive(module("image")))
        self.registry.replies["/added.wasm"] = Reply(module("file"))
        self.registry.replies["/traps.wasm"] = Reply(module(traps=True))

    def _base(self) -> list[Plain]:
        server = {
            "port": {"number": self.port, "name": "http", "protocol": "HTTP"},
            "hosts": ["*"],
            "bind": "127.0.0.1",
        }
        routes = {"hosts": ["*"], "gateways": ["front"], "http": [{"directResponse": {"status": 200}}]}
        secret = data_secret("pull", {".dockerconfigjson": self.registry.docker_config().encode()}, "shop")
        return [
            make("Gateway", "front", json.dumps({"selector": {"app": "edge"}, "servers": [server]}), "shop"),
            make("VirtualService", "all", json.dumps(routes), "shop"),
            secret | {"type": "kubernetes.io/dockerconfigjson"},
        ]

    def apply(self, *extensions: tuple[str, str]) -> None:
        """Replace the extensions of the gateway, and wait until they are active in its listener."""
        self._round += 1
        mark = f"round-{self._round}"
        script = make("TrafficExtension", mark, "{lua: {inlineCode: 'x = 1'}}", "shop")
        objects = [make(kind, f"x{self._round}-{i}", spec, "shop") for i, (kind, spec) in enumerate(extensions)]
        (self.folder / "extensions.next").write_text(yaml.safe_dump_all([script, *objects]))
        (self.folder / "extensions.next").rename(self.folder / "extensions.yaml")

        def active() -> bool:
            self.agent.check_alive()
            listeners = json.loads(self.agent.get("/config_dump?resource=dynamic_listeners")).get("configs", ())
            return any(mark in json.dumps(listener.get("active_state", {})) for listener in listeners)

        eventually(active, 30, f"the listener of {mark}: {self.agent.tail(15)}")

    def outcome(self) -> tuple[int, str, str]:
        """Return the status of a request, or 0 if the connection ends, and the headers that extensions add."""
        try:
            response = send_request(("127.0.0.1", self.port), "/", host="a.test")
        except OSError:
            return 0, "", ""
        return response.status, response.headers.get(HEADER, ""), response.headers.get("x-lua", "")


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with contextlib.ExitStack() as stack:
        gateway = Edge(tmp_path_factory.mktemp("edge"), stack)
        gateway.apply()
        eventually(lambda: gateway.outcome()[0] == 200, 30, "the gateway answers")
        yield gateway


class Row(NamedTuple):
    name: str
    extensions: tuple[tuple[str, str], ...]
    expected: tuple[int, str, str]


def lua(script: str) -> tuple[str, str]:
    return "TrafficExtension", json.dumps({"lua": {"inlineCode": script}, "phase": "AUTHZ"})


def wasm(url: str, strategy: str = "FAIL_CLOSE", **more: str) -> tuple[str, str]:
    return "WasmPlugin", json.dumps({"url": url, "failStrategy": strategy, "phase": "AUTHN", **more})


IMAGE, OTHER = "oci://HOST/lab/added:1", "oci://HOST/lab/other:1"
FILE, TRAPS, MISSING = "http://HOST/added.wasm", "http://HOST/traps.wasm", "http://HOST/gone.wasm"
ROWS = (
    Row("a script adds a header", (lua(LUA),), (200, "", "added")),
    Row("a failing script does not affect the request", (lua(FAILING_LUA),), (200, "", "")),
    Row("a module from a registry with a login", (wasm(IMAGE, imagePullSecret="pull"),), (200, "image", "")),
    Row("a module from a registry without its login", (wasm(OTHER),), (403, "", "")),
    Row("a module with a missing pull secret", (wasm(IMAGE, imagePullSecret="none"),), (403, "", "")),
    Row(
        "a module over HTTP and a script",
        (wasm(FILE, sha256=hashlib.sha256(module("file")).hexdigest()), lua(LUA)),
        (200, "file", "added"),
    ),
    Row("a module with a wrong checksum", (wasm(FILE, sha256="ab" * 32),), (403, "", "")),
    Row("a module with a wrong checksum and FAIL_OPEN", (wasm(FILE, "FAIL_OPEN", sha256="ab" * 32),), (200, "", "")),
    Row("a module that traps", (wasm(TRAPS),), (503, "", "")),
    Row("a module that traps with FAIL_OPEN", (wasm(TRAPS, "FAIL_OPEN"),), (200, "", "")),
    Row("a missing module", (wasm(MISSING),), (403, "", "")),
    Row("a missing module with FAIL_OPEN", (wasm(MISSING, "FAIL_OPEN"),), (200, "", "")),
    Row("a missing network module", (wasm(MISSING, type="NETWORK"),), (0, "", "")),
    Row(
        "a missing network module with FAIL_OPEN",
        (wasm(MISSING, "FAIL_OPEN", type="NETWORK"),),
        (200, "", ""),
    ),
)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_extension_runs_or_fails_by_its_policy(edge: Edge, row: Row) -> None:
    edge.apply(*((kind, spec.replace("HOST", edge.registry.host)) for kind, spec in row.extensions))
    eventually(
        lambda: edge.outcome() == row.expected, 15, f"{row.expected}, now {edge.outcome()}: {edge.agent.tail(10)}"
    )


def test_pull_secret_does_not_reach_envoy(edge: Edge) -> None:
    edge.apply(wasm(IMAGE.replace("HOST", edge.registry.host), imagePullSecret="pull"))
    eventually(lambda: edge.outcome() == (200, "image", ""), 15, "the module runs")
    dump = edge.agent.get("/config_dump")
    assert "envoy.wasm.runtime.v8" in dump
    assert "ISTIO_META_WASM" not in dump
    assert "auths" not in dump
