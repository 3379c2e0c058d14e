"""The ports of a process: what they say when an address is taken, and how they end. Roots and writers of other clusters by small parts."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import pathlib
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from ca.errors import SigningError
from pilot.bootstrap import fetchers, ports
from pilot.bootstrap.clusters.remote_controllers import ClusterControllers, RemoteControllers
from pilot.bootstrap.diagnostics import ControlzPort
from pilot.bootstrap.fetchers import make_key_sets
from pilot.bootstrap.ports import GrpcPort, HttpPort
from pilot.bootstrap.security import external_signer, secure_port
from pilot.bootstrap.security.external_signer import ExternalSigner
from pilot.bootstrap.security.secure_port import SecurePort
from pilot.config.mesh.mesh_config import CertificateData, MeshConfig
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_errors import KubeError, NotFound
from pilot.kube.certificate_requests import SERVER_USAGES, WORKLOAD_USAGES
from pilot.lib.duration import parse_duration
from pilot.lib.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.settings.parse import load
from pilot.settings.security import AuthoritySettings
from pilot.xds.net.listen_address import Address
from testing.kube.kube_access import until
from testing.security.certificates import IDENTITY, csr, root

DRAIN_TIME = parse_duration("7s")
FREE_PORT = Address("127.0.0.1", 0)
FIRST, SECOND = root(1), root(2)


@pytest.fixture
def occupied() -> Iterator[Address]:
    """An address that another socket listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield Address(*other.getsockname())


async def respond(_: web.Request) -> web.Response:
    return web.Response(text="here")


def application() -> web.Application:
    app = web.Application()
    app.router.add_get("/", respond)
    return app


async def test_http_port_listens_until_it_stops() -> None:
    port = HttpPort(application(), FREE_PORT)
    assert port.number == 0
    await port.stop()
    await port.start()
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port.number}/") as response:
        assert await response.text() == "here"
    await port.stop()
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", port.number)


async def test_occupied_http_address_aborts_the_start(occupied: Address) -> None:
    with pytest.raises(StartError, match=rf"^cannot listen on {occupied}: .*[Aa]ddress already in use"):
        await HttpPort(application(), occupied).start()


class Server:
    """A gRPC server that records calls."""

    def __init__(self, journal: list[Any], error: Exception | None = None) -> None:
        self.journal, self._error = journal, error

    def add_insecure_port(self, address: str) -> int:
        if self._error is not None:
            raise self._error
        self.journal.append(f"port {address}")
        return 4711

    async def start(self) -> None:
        self.journal.append("start")

    async def stop(self, grace: Any) -> None:
        self.journal.append(f"stop {grace}")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    lines: list[Any] = []

    async def drain(server: Any, connections: Any, seconds: float) -> None:
        lines.append(("drain", type(server).__name__, connections, seconds))

    monkeypatch.setattr(ports, "drain", drain)
    monkeypatch.setattr(secure_port, "drain", drain)
    return lines


async def test_grpc_port_drains_streams(journal: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    server: Any = Server(journal)
    connections: Any = ["connections"]
    port = GrpcPort(server, Address("127.0.0.1", 15010), connections, DRAIN_TIME)
    assert port.number == 15010
    await port.start()
    assert (port.number, journal, caplog.messages) == (4711, ["port 127.0.0.1:15010", "start"], [])
    await port.stop()
    assert journal[2:] == [("drain", "Server", connections, 7.0)]
    assert caplog.messages == ["shutting down: draining open streams for up to 7s"]


async def test_occupied_grpc_address_aborts_the_start(journal: list[Any]) -> None:
    server: Any = Server(journal, RuntimeError("Failed to bind"))
    with pytest.raises(StartError, match=r"^cannot listen on 127.0.0.1:1: Failed to bind$"):
        await GrpcPort(server, Address("127.0.0.1", 1), (), DRAIN_TIME).start()
    assert journal == []


class Front:
    """The TLS front of a port."""

    inner = "unix:inner"

    def __init__(self, journal: list[Any], error: OSError | None = None) -> None:
        self.journal, self._error = journal, error

    async def listen(self, address: Address, context: Any, names: Any) -> int:
        if self._error is not None:
            raise self._error
        self.journal.append(("listen", str(address), context, names.keywords))
        return 4712

    def use_context(self, context: Any) -> None:
        self.journal.append(("use", context))

    def stop_accepting(self) -> None:
        self.journal.append("stop accepting")

    def close(self) -> None:
        self.journal.append("close")


def make_secure_port(
    journal: list[Any], context: Any = "context", error: OSError | None = None
) -> tuple[SecurePort, Any]:
    certificate: Any = SimpleNamespace(context=context, on_change=[])
    server: Any = Server(journal)
    front: Any = Front(journal, error)
    connections: Any = ["connections"]
    return SecurePort(
        server, front, certificate, lambda: "td", Address("", 15012), connections, DRAIN_TIME
    ), certificate


async def test_secure_port_accepts_drains_and_closes(journal: list[Any]) -> None:
    port, certificate = make_secure_port(journal)
    await port.start()
    assert (port.number, journal) == (
        4712,
        ["port unix:inner", "start", ("listen", "[::]:15012", "context", {"trust_domain": "td"})],
    )
    certificate.on_change[0]("other")
    await port.stop()
    assert journal[3:] == [("use", "other"), "stop accepting", ("drain", "Server", ["connections"], 7.0), "close"]


async def test_occupied_secure_address_leaves_nothing_open(journal: list[Any]) -> None:
    port, _ = make_secure_port(journal, error=OSError(98, "Address already in use"))
    with pytest.raises(StartError, match=r"^cannot listen on \[::\]:15012: Address already in use$"):
        await port.start()
    assert journal == ["port unix:inner", "start", "stop None"]


async def test_secure_port_needs_a_certificate(journal: list[Any]) -> None:
    port, _ = make_secure_port(journal, context=None)
    await port.start()
    await port.stop()
    assert (port.number, journal) == (15012, [])


async def test_controlz_logs_its_address_or_that_it_is_occupied(
    occupied: Address, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    ends: list[str] = []
    port = ControlzPort(FREE_PORT, Metrics(), lambda: ends.append("end"))
    await port.start()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port.number}/scopej/") as response:
            assert response.status == 200
        async with session.put(f"http://127.0.0.1:{port.number}/homej/exit") as response:
            assert response.status == 202
    await until(lambda: ends == ["end"])
    await port.stop()
    await ControlzPort(occupied, Metrics(), lambda: None).start()
    assert caplog.messages[0] == f"ControlZ available at 127.0.0.1:{port.number}"
    assert caplog.messages[-1].startswith(f"ControlZ is not available: cannot listen on {occupied}: ")


# -- key sets and gateway names ----------------------------------------------------------------------------------------


def test_key_set_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    calls: dict[str, tuple[Any, ...]] = {}

    def recorder(name: str) -> Any:
        def make(*args: Any) -> str:
            calls[name] = args
            return name

        return make

    for name in ("AddressRules", "make_tls", "JwksClient", "KeyStore", "KeySets"):
        monkeypatch.setattr(fetchers, name, recorder(name))
    environ = {
        "PILOT_ALLOWED_CIDRS_IN_JWKS_URIS": "10.0.0.0/8",
        "BLOCKED_CIDRS_IN_JWKS_URIS": "1.0.0.0/8",
        "PILOT_JWKS_EXTRA_ROOTS": "/roots",
        "JWKS_RESOLVER_INSECURE_SKIP_VERIFY": "true",
        "PILOT_JWKS_MAX_BYTES": "7",
        "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": "5m",
        "PILOT_STATE_DIR": "/state",
    }
    db, batch, problems, metrics = (object() for _ in range(4))
    args: Any = (db, batch, problems, metrics)
    key_sets: Any = make_key_sets(load([], environ).settings, *args)
    assert key_sets == "KeySets"
    assert calls == {
        "AddressRules": (("10.0.0.0/8",), ("1.0.0.0/8",)),
        "make_tls": ("/roots", True),
        "JwksClient": ("AddressRules", "make_tls", 7),
        "KeyStore": ("/state",),
        "KeySets": (db, batch, "JwksClient", "KeyStore", problems, metrics, parse_duration("5m")),
    }


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "BLOCKED_CIDRS_IN_JWKS_URIS",
            "nonsense",
            "^PILOT_ALLOWED_CIDRS_IN_JWKS_URIS, BLOCKED_CIDRS_IN_JWKS_URIS: .*nonsense",
        ),
        ("PILOT_JWKS_EXTRA_ROOTS", "FILE", "^cannot read .*roots.pem: "),
    ],
)
def test_invalid_key_set_settings_abort_the_start(
    tmp_path: pathlib.Path, variable: str, text: str, message: str
) -> None:
    (tmp_path / "roots.pem").write_text("nonsense")
    environ = {variable: text.replace("FILE", str(tmp_path / "roots.pem"))}
    args: Any = (object(), object(), object(), Metrics())
    with pytest.raises(StartError, match=message):
        make_key_sets(load([], environ).settings, *args)


def test_gateway_host_names_are_resolved_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetchers, "read_name_servers", lambda: ["10.0.0.53"])
    for name in ("NameServers", "GatewayNames"):
        monkeypatch.setattr(fetchers, name, lambda *values: values)
    args: Any = (object(), object(), ProblemStore())
    names: Any = fetchers.make_gateway_names(load([], {}).settings, *args)
    assert names == (*args[:2], (["10.0.0.53"], 5.0), args[2])
    assert fetchers.make_gateway_names(load([], {"RESOLVE_HOSTNAME_GATEWAYS": "false"}).settings, *args) is None


# -- external signer ---------------------------------------------------------------------------------------------------


def make_signer(mesh: MeshConfig, domain: str = "") -> ExternalSigner:
    settings = dataclasses.replace(
        AuthoritySettings(),
        external="ISTIOD_RA_KUBERNETES_API",
        external_signer="example.com/mesh",
        external_domain=domain,
    )
    client: Any = object()
    return ExternalSigner(settings, client, lambda: mesh)


def mesh_with(*entries: tuple[str, bytes]) -> MeshConfig:
    certificates = tuple(
        CertificateData(pem=pem.decode(), cert_signers=(signer,) if signer else ()) for signer, pem in entries
    )
    return msgspec.structs.replace(MeshConfig(), ca_certificates=certificates)


def test_signer_roots_come_from_the_mesh_config() -> None:
    mesh = mesh_with(
        ("a", FIRST.roots_pem),
        ("b", SECOND.roots_pem),
        ("c", b"nonsense"),
        ("", root(3).roots_pem),
        ("a", FIRST.roots_pem),
    )
    signer_client = make_signer(mesh)
    assert tuple(signer_client.roots_of("b")) == SECOND.roots
    assert tuple(signer_client.roots_of("c")) == tuple(signer_client.roots_of("d")) == ()
    assert signer_client.roots_pem() == FIRST.roots_pem + SECOND.roots_pem, "deduplicated, without roots of no signer"


async def test_signer_receives_the_workload_request(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, request = list[Any](), csr(names=(IDENTITY,))

    async def request_certificate(*args: Any) -> bytes:
        requests.append(args)
        raise KubeError("away")

    monkeypatch.setattr(external_signer, "request_certificate", request_certificate)
    signer_client = make_signer(mesh_with(("a", FIRST.roots_pem)), "x.com")
    for signer in ("", "other"):
        with pytest.raises(SigningError, match="away") as error:
            await signer_client.sign(request, (IDENTITY,), 60, signer)
        assert error.value.code == "CERT_GEN_ERROR"
    with pytest.raises(SigningError, match="away"):
        await signer_client.request_for_server(request, "x.com/servers")
    client = signer_client._client
    assert requests == [
        (client, "csr-workload-", request, "example.com/mesh", 60, WORKLOAD_USAGES),
        (client, "csr-workload-", request, "x.com/other", 60, WORKLOAD_USAGES),
        (client, "csr-istiod-", request, "x.com/servers", 0, SERVER_USAGES),
    ]


@pytest.mark.parametrize(
    ("domain", "files", "source"),
    [("", "server", "server"), ("", "both", "mounted"), ("x.com", "server", ""), ("x.com", "both", "mounted")],
)
async def test_root_files_win_over_the_mesh_config(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    domain: str,
    files: str,
    source: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    mounted, server = tmp_path / "root-cert.pem", tmp_path / "ca.crt"
    monkeypatch.setattr(external_signer, "ROOTS_FILE", str(mounted))
    monkeypatch.setattr(external_signer, "API_SERVER_ROOTS_FILE", str(server))
    server.write_bytes(FIRST.roots_pem)
    if files == "both":
        mounted.write_bytes(SECOND.roots_pem)
    signer_client = make_signer(mesh_with(("a", root(3).roots_pem)), domain)
    await signer_client.start()
    expected = {"server": FIRST.roots, "mounted": SECOND.roots, "": ()}[source]
    assert (tuple(signer_client.roots), tuple(signer_client.roots_of("a"))) == (expected, expected or root(3).roots)
    assert caplog.messages == ["workload certificates are issued by Kubernetes signers"]


async def test_invalid_root_file_aborts_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "roots").write_text("nonsense")
    monkeypatch.setattr(external_signer, "ROOTS_FILE", str(tmp_path / "roots"))
    with pytest.raises(StartError, match=r"^cannot read the roots of the external signer: "):
        await make_signer(MeshConfig()).start()


async def test_changed_mesh_config_roots_are_reported_once() -> None:
    first, second, calls = mesh_with(("a", FIRST.roots_pem)), mesh_with(("a", SECOND.roots_pem)), list[str]()
    signer_client = make_signer(first)
    signer_client.on_change.append(lambda: calls.append("changed"))
    await signer_client.start()
    signer_client.on_mesh_config(first)
    assert calls == [], "the roots have not changed"
    for _ in range(2):
        signer_client.on_mesh_config(second)
    assert calls == ["changed"]


async def test_refused_certificate_request_is_a_signing_error(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[Any, ...]] = []

    async def request(*args: Any) -> bytes:
        requests.append(args)
        if len(requests) > 2:
            raise KubeError("503 busy")
        return b"chain"

    monkeypatch.setattr(external_signer, "request_certificate", request)
    signer_client = make_signer(MeshConfig())
    client = signer_client._client
    assert (
        await signer_client._request(b"csr", "a/b", 60)
        == await signer_client.request_for_server(b"csr", "a/b")
        == b"chain"
    )
    assert requests == [
        (client, "csr-workload-", b"csr", "a/b", 60, WORKLOAD_USAGES),
        (client, "csr-istiod-", b"csr", "a/b", 0, SERVER_USAGES),
    ]
    for attempt in (signer_client._request(b"csr", "a/b", 60), signer_client.request_for_server(b"csr", "a/b")):
        with pytest.raises(SigningError, match="503 busy") as error:
            await attempt
        assert error.value.code == "CERT_GEN_ERROR"


# -- remote clusters ---------------------------------------------------------------------------------------------------


class RemoteCluster:
    """A remote cluster with an annotated system namespace, and a record of its controllers."""

    def __init__(self, *responses: Any, has_bundles: bool = True) -> None:
        self.responses, self.requests, self.lines, self.waits = list(responses), list[str](), list[str](), 0
        self.has_bundles, self.authority = has_bundles, asyncio.Event()
        roots: Any = SimpleNamespace(resync=lambda: self.lines.append("roots changed"))
        webhooks: Any = SimpleNamespace(
            resync=lambda: self.lines.append("bundles changed"), run=lambda: self._run("bundles")
        )
        controllers = ClusterControllers(roots, webhooks if has_bundles else None)
        self.remote = RemoteControllers(
            "east",
            "mesh",
            lambda client: controllers,
            lambda client, roots: self._run("lead"),
            self.authority,
            lambda: self,  # type: ignore[return-value]
        )

    def next_delay(self) -> float:
        self.waits += 1
        return 0.0

    async def _run(self, line: str) -> None:
        self.lines.append(line)
        try:
            await asyncio.Event().wait()
        finally:
            self.lines.append(f"end of {line}")

    async def call(self, method: str, path: str) -> bytes:
        self.requests.append(f"{method} {path}")
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return msgspec.json.encode({"metadata": {"annotations": response} if response is not None else {}})

    async def begin(self) -> asyncio.Task[None]:
        client: Any = self
        task = asyncio.create_task(self.remote.run("west", client))
        for _ in range(8):
            await asyncio.sleep(0)
        return task


CONTROL_PLANES = "topology.istio.io/controlPlaneClusters"


@pytest.mark.parametrize(
    ("response", "is_written"),
    [
        ({CONTROL_PLANES: "east"}, True),
        ({CONTROL_PLANES: "a,east"}, True),
        ({CONTROL_PLANES: "*"}, True),
        ({CONTROL_PLANES: "eastern"}, False),
        ({}, False),
        (None, False),
        (NotFound(404, "NotFound", ""), False),
    ],
)
async def test_annotated_cluster_is_written_to(
    response: Any, is_written: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    cluster = RemoteCluster(response)
    cluster.authority.set()
    task = await cluster.begin()
    assert cluster.requests == ["GET /api/v1/namespaces/mesh"]
    assert cluster.lines == (["lead", "bundles"] if is_written else [])
    assert caplog.messages == (["cluster west: writing root certificates"] if is_written else [])
    assert task.done() is not is_written
    task.cancel()
    await asyncio.wait((task,))
    assert sorted(cluster.lines[2:]) == (["end of bundles", "end of lead"] if is_written else [])


async def test_remote_writes_wait_for_roots_and_follow_changes() -> None:
    cluster = RemoteCluster({CONTROL_PLANES: "*"})
    task = await cluster.begin()
    cluster.remote.resync()
    assert cluster.lines == []
    cluster.authority.set()
    for _ in range(5):
        await asyncio.sleep(0)
    cluster.remote.resync()
    assert cluster.lines == ["lead", "bundles", "roots changed", "bundles changed"]
    task.cancel()
    await asyncio.wait((task,))
    cluster.lines.clear()
    cluster.remote.resync()
    assert cluster.lines == []


async def test_only_roots_are_written_without_remote_webhooks() -> None:
    cluster = RemoteCluster({CONTROL_PLANES: "*"}, has_bundles=False)
    cluster.authority.set()
    task = await cluster.begin()
    cluster.remote.resync()
    assert cluster.lines == ["lead", "roots changed"]
    task.cancel()
    await asyncio.wait((task,))


async def test_unreachable_cluster_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    cluster = RemoteCluster(KubeError("503 busy"), KubeError("503 busy"), {})
    task = await cluster.begin()
    await task
    assert (len(cluster.requests), cluster.waits) == (3, 2)
    assert caplog.messages == ["cluster west: cannot read namespace mesh: 503 busy"] * 2
