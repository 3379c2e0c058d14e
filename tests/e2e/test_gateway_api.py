"""The table of what the Gateway API promises, request by request, through one stock Envoy."""

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
from testing.processes.agent_stub import Agent, Root
from testing.processes.process import ControlPlane, Envoy, Proof, eventually, free_port
from testing.security.credentials import Authority
from testing.servers.backends import Answer
from testing.servers.table_backends import EXTRA, Seen, TableBackend
from testing.tables.gateway_api_cases import BACKENDS, PORTS, ROWS, objects, request
from tests.simulate.envoy import Request

IDENTITY = "spiffe://cluster.local/ns/edge/sa/gateway"
MANY = 80
SECONDS = 15.0


class Edge:
    """A gateway of the table's objects, and its backends."""

    def __init__(self, work: pathlib.Path) -> None:
        issued = Authority("backends").issue("backend")
        self.backends = {key: TableBackend(".".join(key), issued, work) for key in BACKENDS}
        self.targets = {port: free_port() for port in PORTS}
        config = work / "config"
        config.mkdir()
        made = [*objects(self.targets), *(self.endpoints(*key) for key in BACKENDS)]
        (config / "table.yaml").write_text("\n---\n".join(map(json.dumps, made)))
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
            proof=Proof.write(work, *root.issue(IDENTITY), root.pem),
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

    def connect(self, asked: Request) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.targets.get(asked.port) or free_port()), timeout=SECONDS)
        if asked.sni is None:
            return made
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(made, server_hostname=asked.sni)

    def ask(self, asked: Request, **headers: str) -> Answer:
        with contextlib.closing(http.client.HTTPConnection(asked.host)) as connection:
            connection.sock = self.connect(asked)
            body = "" if asked.method == "POST" else None
            connection.request(asked.method, asked.path, body, headers={"host": asked.host, **asked.headers, **headers})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
            return Answer(
                response.status,
                {k.lower(): ", ".join(response.headers.get_all(k) or ()) for k in response.headers},
                text,
            )

    def ask_once(self, asked: Request, **headers: str) -> tuple[Answer, dict[str, list[Seen]]]:
        """The answer to a request, and what each backend saw of it."""
        number = uuid.uuid4().hex
        answer = self.ask(asked, **headers, x_number=number)
        return answer, self.seen(number)

    def seen(self, number: str) -> dict[str, list[Seen]]:
        own = (
            (b.name, [one for one in list(b.seen) if one.headers.get("x_number") == [number]])
            for b in self.backends.values()
        )
        return {name.removesuffix(".edge"): found for name, found in own if found}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    made = Edge(tmp_path_factory.mktemp("table"))
    try:
        eventually(lambda: made.ask(request("plain.org/")).status == 200, 60, "the first route")
        eventually(lambda: made.ask(request("a.x.com/ 443 tls")).status == 200, 60, "the first certificate")
        eventually(lambda: made.ask(request("set.org/ 8082")).status == 200, 60, "the last listener")
        yield made
    finally:
        made.stop()


@pytest.fixture
def edge(running: Edge) -> Edge:
    running.reset()
    return running


# -- what a row says -------------------------------------------------------------------------------------------------------


def check(edge: Edge, asked: Request, becomes: str) -> None:
    """Sends a request, or as many as it takes, and holds what becomes of it against a row of the table."""
    words = becomes.split()
    if becomes in ("no listener", "no chain") or "zero-weight" in becomes:
        with pytest.raises((ssl.SSLError, OSError, http.client.RemoteDisconnected)):
            edge.ask(asked)
    elif becomes == "404":
        answer, seen = edge.ask_once(asked)
        assert (answer.status, seen) == (404, {})
    elif becomes in ("answers 500", "ghost", "UnknownService"):
        answer, seen = edge.ask_once(asked)
        assert (answer.status, seen) == (500, {})
    elif words[0] == "redirect":
        check_redirect(edge.ask(asked), asked, int(words[1]), dict(word.split("=", 1) for word in words[2:]))
    elif "%" in words[0]:
        check_shares(edge, asked, becomes)
    else:
        check_backend(edge, asked, words[0], words[1:])


def check_redirect(answer: Answer, asked: Request, status: int, said: dict[str, str]) -> None:
    path = (
        said.get("path") or re.sub(r"^/[^/]*", said["prefix"], asked.path)
        if {"path", "prefix"} & said.keys()
        else asked.path
    )
    found = urllib.parse.urlsplit(answer.headers["location"])
    assert answer.status == status
    assert (found.scheme, found.hostname, found.path) == (
        said.get("scheme", "http"),
        said.get("host", asked.host),
        path,
    )
    assert str(found.port or "") == said.get("port", "")


def check_shares(edge: Edge, asked: Request, becomes: str) -> None:
    weights = {name: int(share) for share, name in re.findall(r"(\d+)% (\S+?)(?:,|$)", becomes)}
    went: Counter[str] = Counter()
    for _ in range(MANY):
        answer = edge.ask(asked)
        went[
            json.loads(answer.text)["backend"].removesuffix(".edge") if answer.status == 200 else "UnknownService"
        ] += 1
        assert answer.status in (200, 500)
    assert went.keys() == weights.keys()
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(went[name] - share * MANY) < 6 * (share * (1 - share) * MANY) ** 0.5, "six standard deviations"


def check_backend(edge: Edge, asked: Request, name: str, changes: list[str]) -> None:
    said = [re.split(r"(?<=[a-z])[=:*]", word, maxsplit=1) for word in changes]
    own = (
        {"x-a": "was"}
        if any("x-a" in word and word[0] in "=+-" for word in changes) and "x-a" not in asked.headers
        else {}
    )
    waits = {part[0]: part[1] for part in said if part[0] in ("timeout", "retries", "on")}
    if waits:
        check_patience(edge, asked, name, waits, [word for word in changes if word.startswith("on=")])
        return
    answer, seen = edge.ask_once(asked, **own)
    assert answer.status == 200
    assert json.loads(answer.text)["backend"].removesuffix(".edge") == name
    (one,) = seen[name]
    for word in changes:
        check_change(word, one, answer, edge, asked)


def check_change(word: str, one: Seen, answer: Answer, edge: Edge, asked: Request) -> None:
    if word.startswith("<"):
        name, _, value = word[2:].partition(":")
        found = answer.headers.get(name)
        expected = {"=": value, "-": None}.get(word[1], ", ".join(part for part in (EXTRA.get(name), value) if part))
        assert found == expected
    elif word[0] in "=+-":
        name, _, value = word[1:].partition(":")
        have = [part.strip() for line in one.headers.get(name, ()) for part in line.split(",")]
        before = ["was"] if name == "x-a" else []
        assert have == {"=": [value], "-": []}.get(word[0], [*before, value])
    elif word.startswith("host="):
        assert one.headers["host"] == [word.removeprefix("host=")]
    elif word.startswith("path="):
        assert one.path == word.removeprefix("path=")
    elif word.startswith("copy="):
        check_copies(edge, asked, *word.removeprefix("copy=").split("*"))
    else:
        assert word == "named", word


def check_copies(edge: Edge, asked: Request, name: str, share: str) -> None:
    count, part = (1, 1.0) if share == "1" else (2 * MANY, float(share))
    marker = uuid.uuid4().hex  # Envoy mirrors asynchronously: a late copy of an earlier request is not counted
    for _ in range(count):
        edge.ask(asked, x_number=marker)

    def copies() -> int:
        return len(edge.seen(marker).get(name, ()))

    spread = 6 * (part * (1 - part) * count) ** 0.5
    eventually(lambda: copies() >= max(1, part * count - spread), 10, "the copies")
    assert copies() <= part * count + spread


def check_patience(edge: Edge, asked: Request, name: str, waits: dict[str, str], codes: list[str]) -> None:
    """What a route waits for, and how often it tries: a backend that is too slow, or fails once less often than it may, and once more."""
    backend = edge.backend(name)
    if "timeout" in waits:
        tries = (
            waits.get("retries", "").partition("*")[2] or waits["timeout"]
        )  # Envoy gives up a try that is too slow, and the request with it
        limit = int(tries.removesuffix("ms")) / 1000
        backend.delay = limit + 0.5
        began = time.monotonic()
        assert edge.ask(asked).status == 504
        assert limit - 0.1 <= time.monotonic() - began
        return
    most = int(waits["retries"])
    for code in [int(word.removeprefix("on=")) for word in codes] or [503]:
        for fails, status in ((most, 200), (most + 1, code)):
            backend.reset()
            backend.fail, backend.status = fails, code
            assert edge.ask(asked).status == status
            assert len(backend.seen) == most + 1


@pytest.mark.parametrize(("feature", "sent", "becomes"), ROWS, ids=[f"{feature} {sent}" for feature, sent, _ in ROWS])
def test_requests_go_where_the_feature_says(edge: Edge, feature: str, sent: str, becomes: str) -> None:
    check(edge, request(sent), becomes)


def test_envoy_refuses_nothing(edge: Edge) -> None:
    assert edge.envoy.rejected() == {}
