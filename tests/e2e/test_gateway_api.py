"""The Gateway API table, request by request, through a stock Envoy."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import re
import socket
import ssl
import time
import urllib.parse
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.mesh.objects import at, endpoint_slice
from testing.mesh.traffic import Request
from testing.processes.agent_stub import Agent, Root
from testing.processes.process import ControlPlane, Envoy, XdsCredentials, eventually, free_port
from testing.security.credentials import Authority
from testing.servers.backends import HttpResponse
from testing.servers.table_backends import EXTRA, ReceivedRequest, TableBackend
from testing.tables.gateway_api_cases import BACKENDS, PORTS, ROWS, objects, request

IDENTITY = "spiffe://cluster.local/ns/edge/sa/gateway"
REQUESTS = 80
SECONDS = 15.0


class Edge:
    """A gateway with the objects of the table, and its backends."""

    def __init__(self, work: pathlib.Path) -> None:
        issued = Authority("backends").issue("backend")
        self.backends = {key: TableBackend(".".join(key), issued, work) for key in BACKENDS}
        self.targets = {port: free_port() for port in PORTS}
        config = work / "config"
        config.mkdir()
        manifests = [*objects(self.targets), *(self.endpoints(*key) for key in BACKENDS)]
        (config / "table.yaml").write_text("\n---\n".join(map(json.dumps, manifests)))
        self.pilot = ControlPlane(
            work, config, more=("--caDir", str(work / "ca")), mesh_config="enableAutoMtls: false\n"
        )
        self.pilot.wait_ready()
        root = Root.load(work / "ca")
        self.agent = Agent(root, IDENTITY, work / "agent.sock")
        node = ProxyNode(
            type="router",
            name="front-0",
            namespace="edge",
            ip="127.0.0.2",
            labels={"app": "front"},
            service_account="gateway",
        )
        self.envoy = Envoy(
            work,
            node,
            self.pilot.secure_xds,
            self.agent.socket,
            credentials=XdsCredentials.write(work, *root.issue(IDENTITY), root.pem),
        )

    def endpoints(self, name: str, namespace: str) -> dict[str, Any]:
        ports = f"[{{name: http, port: {self.backends[name, namespace].server_address[1]}}}]"
        return endpoint_slice(name, at("127.0.0.1"), namespace=namespace, ports=ports)

    def reset(self) -> None:
        for backend in self.backends.values():
            backend.reset()

    def stop(self) -> None:
        self.envoy.stop()
        self.pilot.stop()
        self.agent.stop()
        for backend in self.backends.values():
            backend.stop()

    def backend(self, name: str) -> TableBackend:
        short, _, namespace = name.partition(".")
        return self.backends[short, namespace or "edge"]

    # -- one request ---------------------------------------------------------------------------------------------------

    def connect(self, call: Request) -> socket.socket:
        connection = socket.create_connection(
            ("127.0.0.1", self.targets.get(call.port) or free_port()), timeout=SECONDS
        )
        if call.sni is None:
            return connection
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(connection, server_hostname=call.sni)

    def ask(self, call: Request, **headers: str) -> HttpResponse:
        with contextlib.closing(http.client.HTTPConnection(call.host)) as connection:
            connection.sock = self.connect(call)
            body = "" if call.method == "POST" else None
            connection.request(call.method, call.path, body, headers={"host": call.host, **call.headers, **headers})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
            return HttpResponse(
                response.status,
                {k.lower(): ", ".join(response.headers.get_all(k) or ()) for k in response.headers},
                text,
            )

    def ask_once(self, call: Request, **headers: str) -> tuple[HttpResponse, dict[str, list[ReceivedRequest]]]:
        """Send a request and return its response, and its copies at each backend."""
        request_id = uuid.uuid4().hex
        response = self.ask(call, **headers, x_number=request_id)
        return response, self.received(request_id)

    def received(self, request_id: str) -> dict[str, list[ReceivedRequest]]:
        by_backend = (
            (b.name, [one for one in list(b.requests) if one.headers.get("x_number") == [request_id]])
            for b in self.backends.values()
        )
        return {name.removesuffix(".edge"): requests for name, requests in by_backend if requests}


@pytest.fixture(scope="module")
def module_edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    env = Edge(tmp_path_factory.mktemp("table"))
    try:
        eventually(lambda: env.ask(request("plain.org/")).status == 200, 60, "the first route")
        eventually(lambda: env.ask(request("a.x.com/ 443 tls")).status == 200, 60, "the first certificate")
        eventually(lambda: env.ask(request("set.org/ 8082")).status == 200, 60, "the last listener")
        yield env
    finally:
        env.stop()


@pytest.fixture
def edge(module_edge: Edge) -> Edge:
    module_edge.reset()
    return module_edge


# -- expectations of a row -------------------------------------------------------------------------------------------------


def check(edge: Edge, call: Request, expected: str) -> None:
    """Send one or more requests and check the outcome that a row of the table expects."""
    words = expected.split()
    if expected in ("no listener", "no chain") or "zero-weight" in expected:
        with pytest.raises((ssl.SSLError, OSError, http.client.RemoteDisconnected)):
            edge.ask(call)
    elif expected == "404":
        response, received = edge.ask_once(call)
        assert (response.status, received) == (404, {})
    elif expected in ("answers 500", "ghost", "UnknownService"):
        response, received = edge.ask_once(call)
        assert (response.status, received) == (500, {})
    elif words[0] == "redirect":
        check_redirect(edge.ask(call), call, int(words[1]), dict(word.split("=", 1) for word in words[2:]))
    elif "%" in words[0]:
        check_shares(edge, call, expected)
    else:
        check_backend(edge, call, words[0], words[1:])


def check_redirect(response: HttpResponse, call: Request, status: int, expected: dict[str, str]) -> None:
    path = (
        expected.get("path") or re.sub(r"^/[^/]*", expected["prefix"], call.path)
        if {"path", "prefix"} & expected.keys()
        else call.path
    )
    location = urllib.parse.urlsplit(response.headers["location"])
    assert response.status == status
    assert (location.scheme, location.hostname, location.path) == (
        expected.get("scheme", "http"),
        expected.get("host", call.host),
        path,
    )
    assert str(location.port or "") == expected.get("port", "")


def check_shares(edge: Edge, call: Request, expected: str) -> None:
    weights = {name: int(share) for share, name in re.findall(r"(\d+)% (\S+?)(?:,|$)", expected)}
    counts: Counter[str] = Counter()
    for _ in range(REQUESTS):
        response = edge.ask(call)
        counts[
            json.loads(response.text)["backend"].removesuffix(".edge") if response.status == 200 else "UnknownService"
        ] += 1
        assert response.status in (200, 500)
    assert counts.keys() == weights.keys()
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(counts[name] - share * REQUESTS) < 6 * (share * (1 - share) * REQUESTS) ** 0.5, (
            "six standard deviations"
        )


def check_backend(edge: Edge, call: Request, name: str, changes: list[str]) -> None:
    parts = [re.split(r"(?<=[a-z])[=:*]", word, maxsplit=1) for word in changes]
    headers = (
        {"x-a": "was"}
        if any("x-a" in word and word[0] in "=+-" for word in changes) and "x-a" not in call.headers
        else {}
    )
    policies = {part[0]: part[1] for part in parts if part[0] in ("timeout", "retries", "on")}
    if policies:
        check_timeouts_and_retries(edge, call, name, policies, [word for word in changes if word.startswith("on=")])
        return
    response, received = edge.ask_once(call, **headers)
    assert response.status == 200
    assert json.loads(response.text)["backend"].removesuffix(".edge") == name
    (copy,) = received[name]
    for word in changes:
        check_change(word, copy, response, edge, call)


def check_change(word: str, copy: ReceivedRequest, response: HttpResponse, edge: Edge, call: Request) -> None:
    if word.startswith("<"):
        name, _, value = word[2:].partition(":")
        actual = response.headers.get(name)
        expected = {"=": value, "-": None}.get(word[1], ", ".join(part for part in (EXTRA.get(name), value) if part))
        assert actual == expected
    elif word[0] in "=+-":
        name, _, value = word[1:].partition(":")
        values = [part.strip() for line in copy.headers.get(name, ()) for part in line.split(",")]
        original = ["was"] if name == "x-a" else []
        assert values == {"=": [value], "-": []}.get(word[0], [*original, value])
    elif word.startswith("host="):
        assert copy.headers["host"] == [word.removeprefix("host=")]
    elif word.startswith("path="):
        assert copy.path == word.removeprefix("path=")
    elif word.startswith("copy="):
        check_copies(edge, call, *word.removeprefix("copy=").split("*"))
    else:
        assert word == "named", word


def check_copies(edge: Edge, call: Request, name: str, share: str) -> None:
    count, fraction = (1, 1.0) if share == "1" else (2 * REQUESTS, float(share))
    marker = uuid.uuid4().hex  # excludes late copies of earlier requests, because Envoy mirrors asynchronously
    for _ in range(count):
        edge.ask(call, x_number=marker)

    def copies() -> int:
        return len(edge.received(marker).get(name, ()))

    spread = 6 * (fraction * (1 - fraction) * count) ** 0.5
    eventually(lambda: copies() >= max(1, fraction * count - spread), 10, "the copies")
    assert copies() <= fraction * count + spread


def check_timeouts_and_retries(
    edge: Edge, call: Request, name: str, policies: dict[str, str], codes: list[str]
) -> None:
    """Check timeouts with a slow backend, and retries with one that fails as often as allowed and once more."""
    backend = edge.backend(name)
    if "timeout" in policies:
        # A try that times out ends the request.
        timeout = policies.get("retries", "").partition("*")[2] or policies["timeout"]
        limit = int(timeout.removesuffix("ms")) / 1000
        backend.delay = limit + 0.5
        start = time.monotonic()
        assert edge.ask(call).status == 504
        assert limit - 0.1 <= time.monotonic() - start
        return
    attempts = int(policies["retries"])
    for code in [int(word.removeprefix("on=")) for word in codes] or [503]:
        for fails, status in ((attempts, 200), (attempts + 1, code)):
            backend.reset()
            backend.fail, backend.status = fails, code
            assert edge.ask(call).status == status
            assert len(backend.requests) == attempts + 1


@pytest.mark.parametrize(("feature", "line", "expected"), ROWS, ids=[f"{feature} {line}" for feature, line, _ in ROWS])
def test_gateway_api_features(edge: Edge, feature: str, line: str, expected: str) -> None:
    check(edge, request(line), expected)


def test_envoy_rejects_nothing(edge: Edge) -> None:
    assert edge.envoy.rejected() == {}
