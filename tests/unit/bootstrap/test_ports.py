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

PATIENCE = parse_duration("7s")
FREE = Address("127.0.0.1", 0)
FIRST, SECOND = root(1), root(2)


@pytest.fixture
def taken() -> Iterator[Address]:
    """An address that somebody else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield Address(*other.getsockname())


async def answer(_: web.Request) -> web.Response:
    return web.Response(text="here")


def application() -> web.Application:
    app = web.Application()
    app.router.add_get("/", answer)
    return app


async def test_an_http_port_listens_until_it_stops() -> None:
    port = HttpPort(application(), FREE)
    assert port.number == 0
    await port.stop()
    await port.start()
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port.number}/") as found:
        assert await found.text() == "here"
    await port.stop()
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", port.number)


async def test_an_http_port_whose_address_is_taken_says_so(taken: Address) -> None:
    with pytest.raises(StartError, match=rf"^cannot listen on {taken}: .*[Aa]ddress already in use"):
        await HttpPort(application(), taken).start()


class Server:
    """A server of gRPC that writes down what is done with it."""

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
    made: list[Any] = []

    async def drain(server: Any, connections: Any, seconds: float) -> None:
        made.append(("drain", type(server).__name__, connections, seconds))

    monkeypatch.setattr(ports, "drain", drain)
    monkeypatch.setattr(secure_port, "drain", drain)
    return made


async def test_a_port_of_grpc_says_how_long_streams_get_to_end(
    journal: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    server: Any = Server(journal)
    connections: Any = ["connections"]
    port = GrpcPort(server, Address("127.0.0.1", 15010), connections, PATIENCE)
    assert port.number == 15010
    await port.start()
    assert (port.number, journal, caplog.messages) == (4711, ["port 127.0.0.1:15010", "start"], [])
    await port.stop()
    assert journal[2:] == [("drain", "Server", connections, 7.0)]
    assert caplog.messages == ["shutting down: draining open streams for up to 7s"]


async def test_a_port_of_grpc_whose_address_is_taken_says_so(journal: list[Any]) -> None:
    server: Any = Server(journal, RuntimeError("Failed to bind"))
    with pytest.raises(StartError, match=r"^cannot listen on 127.0.0.1:1: Failed to bind$"):
        await GrpcPort(server, Address("127.0.0.1", 1), (), PATIENCE).start()
    assert journal == []


class Front:
    """What does the handshakes."""

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


def secure(journal: list[Any], context: Any = "context", error: OSError | None = None) -> tuple[SecurePort, Any]:
    certificate: Any = SimpleNamespace(context=context, on_change=[])
    server: Any = Server(journal)
    front: Any = Front(journal, error)
    connections: Any = ["connections"]
    return SecurePort(server, front, certificate, lambda: "td", Address("", 15012), connections, PATIENCE), certificate


async def test_the_port_with_tls_accepts_drains_and_closes(journal: list[Any]) -> None:
    port, certificate = secure(journal)
    await port.start()
    assert (port.number, journal) == (
        4712,
        ["port unix:inner", "start", ("listen", "[::]:15012", "context", {"trust_domain": "td"})],
    )
    certificate.on_change[0]("other")
    await port.stop()
    assert journal[3:] == [("use", "other"), "stop accepting", ("drain", "Server", ["connections"], 7.0), "close"]


async def test_the_port_with_tls_whose_address_is_taken_leaves_nothing_open(journal: list[Any]) -> None:
    port, _ = secure(journal, error=OSError(98, "Address already in use"))
    with pytest.raises(StartError, match=r"^cannot listen on \[::\]:15012: Address already in use$"):
        await port.start()
    assert journal == ["port unix:inner", "start", "stop None"]


async def test_the_port_with_tls_does_not_listen_without_a_certificate(journal: list[Any]) -> None:
    port, _ = secure(journal, context=None)
    await port.start()
    await port.stop()
    assert (port.number, journal) == (15012, [])


async def test_controlz_says_where_it_is_and_that_its_address_is_taken(
    taken: Address, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    ends: list[str] = []
    port = ControlzPort(FREE, Metrics(), lambda: ends.append("end"))
    await port.start()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port.number}/scopej/") as found:
            assert found.status == 200
        async with session.put(f"http://127.0.0.1:{port.number}/homej/exit") as found:
            assert found.status == 202
    await until(lambda: ends == ["end"])
    await port.stop()
    await ControlzPort(taken, Metrics(), lambda: None).start()
    assert caplog.messages[0] == f"ControlZ available at 127.0.0.1:{port.number}"
    assert caplog.messages[-1].startswith(f"ControlZ is not available: cannot listen on {taken}: ")


# -- what follows key sets and names -----------------------------------------------------------------------------------


def test_key_sets_are_fetched_as_the_settings_say(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    given: dict[str, tuple[Any, ...]] = {}

    def noting(name: str) -> Any:
        def make(*args: Any) -> str:
            given[name] = args
            return name

        return make

    for name in ("AddressRules", "make_tls", "JwksClient", "KeyStore", "KeySets"):
        monkeypatch.setattr(fetchers, name, noting(name))
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
    made: Any = make_key_sets(load([], environ).settings, *args)
    assert made == "KeySets"
    assert given == {
        "AddressRules": (("10.0.0.0/8",), ("1.0.0.0/8",)),
        "make_tls": ("/roots", True),
        "JwksClient": ("AddressRules", "make_tls", 7),
        "KeyStore": ("/state",),
        "KeySets": (db, batch, "JwksClient", "KeyStore", problems, metrics, parse_duration("5m")),
    }


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        (
            "BLOCKED_CIDRS_IN_JWKS_URIS",
            "nonsense",
            "^PILOT_ALLOWED_CIDRS_IN_JWKS_URIS, BLOCKED_CIDRS_IN_JWKS_URIS: .*nonsense",
        ),
        ("PILOT_JWKS_EXTRA_ROOTS", "FILE", "^cannot read .*roots.pem: "),
    ],
)
def test_settings_of_key_sets_that_are_wrong_end_the_start(
    tmp_path: pathlib.Path, variable: str, text: str, why: str
) -> None:
    (tmp_path / "roots.pem").write_text("nonsense")
    environ = {variable: text.replace("FILE", str(tmp_path / "roots.pem"))}
    args: Any = (object(), object(), object(), Metrics())
    with pytest.raises(StartError, match=why):
        make_key_sets(load([], environ).settings, *args)


def test_host_names_of_gateways_are_looked_up_unless_settings_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetchers, "read_name_servers", lambda: ["10.0.0.53"])
    for name in ("NameServers", "GatewayNames"):
        monkeypatch.setattr(fetchers, name, lambda *given: given)
    args: Any = (object(), object(), ProblemStore())
    made: Any = fetchers.make_gateway_names(load([], {}).settings, *args)
    assert made == (*args[:2], (["10.0.0.53"], 5.0), args[2])
    assert fetchers.make_gateway_names(load([], {"RESOLVE_HOSTNAME_GATEWAYS": "false"}).settings, *args) is None


# -- signers of the API server -----------------------------------------------------------------------------------------


def registered(mesh: MeshConfig, domain: str = "") -> ExternalSigner:
    settings = dataclasses.replace(
        AuthoritySettings(),
        external="ISTIOD_RA_KUBERNETES_API",
        external_signer="example.com/mesh",
        external_domain=domain,
    )
    client: Any = object()
    return ExternalSigner(settings, client, lambda: mesh)


def mesh_with(*entries: tuple[str, bytes]) -> MeshConfig:
    told = tuple(CertificateData(pem=pem.decode(), cert_signers=(signer,) if signer else ()) for signer, pem in entries)
    return msgspec.structs.replace(MeshConfig(), ca_certificates=told)


def test_roots_of_signers_are_those_of_the_mesh_config() -> None:
    mesh = mesh_with(
        ("a", FIRST.roots_pem),
        ("b", SECOND.roots_pem),
        ("c", b"nonsense"),
        ("", root(3).roots_pem),
        ("a", FIRST.roots_pem),
    )
    it = registered(mesh)
    assert tuple(it.roots_of("b")) == SECOND.roots
    assert tuple(it.roots_of("c")) == tuple(it.roots_of("d")) == ()
    assert it.roots_pem() == FIRST.roots_pem + SECOND.roots_pem, "each once, and none that is no signer's"


async def test_a_signer_is_asked_for_what_a_workload_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, request = list[Any](), csr(names=(IDENTITY,))

    async def request_certificate(*given: Any) -> bytes:
        asked.append(given)
        raise KubeError("away")

    monkeypatch.setattr(external_signer, "request_certificate", request_certificate)
    it = registered(mesh_with(("a", FIRST.roots_pem)), "x.com")
    for signer in ("", "other"):
        with pytest.raises(SigningError, match="away") as caught:
            await it.sign(request, (IDENTITY,), 60, signer)
        assert caught.value.code == "CERT_GEN_ERROR"
    with pytest.raises(SigningError, match="away"):
        await it.request_for_server(request, "x.com/servers")
    client = it._client
    assert asked == [
        (client, "csr-workload-", request, "example.com/mesh", 60, WORKLOAD_USAGES),
        (client, "csr-workload-", request, "x.com/other", 60, WORKLOAD_USAGES),
        (client, "csr-istiod-", request, "x.com/servers", 0, SERVER_USAGES),
    ]


@pytest.mark.parametrize(
    ("domain", "there", "found"),
    [("", "server", "server"), ("", "both", "mounted"), ("x.com", "server", ""), ("x.com", "both", "mounted")],
)
async def test_roots_in_files_come_before_those_of_the_mesh_config(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    domain: str,
    there: str,
    found: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    mounted, server = tmp_path / "root-cert.pem", tmp_path / "ca.crt"
    monkeypatch.setattr(external_signer, "ROOTS_FILE", str(mounted))
    monkeypatch.setattr(external_signer, "API_SERVER_ROOTS_FILE", str(server))
    server.write_bytes(FIRST.roots_pem)
    if there == "both":
        mounted.write_bytes(SECOND.roots_pem)
    it = registered(mesh_with(("a", root(3).roots_pem)), domain)
    await it.start()
    expected = {"server": FIRST.roots, "mounted": SECOND.roots, "": ()}[found]
    assert (tuple(it.roots), tuple(it.roots_of("a"))) == (expected, expected or root(3).roots)
    assert caplog.messages == ["workload certificates are issued by Kubernetes signers"]


async def test_a_file_of_roots_that_is_broken_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "roots").write_text("nonsense")
    monkeypatch.setattr(external_signer, "ROOTS_FILE", str(tmp_path / "roots"))
    with pytest.raises(StartError, match=r"^cannot read the roots of the external signer: "):
        await registered(MeshConfig()).start()


async def test_other_roots_in_the_mesh_config_are_told_once() -> None:
    first, second, told = mesh_with(("a", FIRST.roots_pem)), mesh_with(("a", SECOND.roots_pem)), list[str]()
    it = registered(first)
    it.on_change.append(lambda: told.append("changed"))
    await it.start()
    it.on_mesh_config(first)
    assert told == [], "these are those of the start"
    for _ in range(2):
        it.on_mesh_config(second)
    assert told == ["changed"]


async def test_what_an_api_server_refuses_is_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    async def request(*given: Any) -> bytes:
        asked.append(given)
        if len(asked) > 2:
            raise KubeError("503 busy")
        return b"chain"

    monkeypatch.setattr(external_signer, "request_certificate", request)
    it = registered(MeshConfig())
    client = it._client
    assert await it._request(b"csr", "a/b", 60) == await it.request_for_server(b"csr", "a/b") == b"chain"
    assert asked == [
        (client, "csr-workload-", b"csr", "a/b", 60, WORKLOAD_USAGES),
        (client, "csr-istiod-", b"csr", "a/b", 0, SERVER_USAGES),
    ]
    for refused in (it._request(b"csr", "a/b", 60), it.request_for_server(b"csr", "a/b")):
        with pytest.raises(SigningError, match="503 busy") as caught:
            await refused
        assert caught.value.code == "CERT_GEN_ERROR"


# -- other clusters ----------------------------------------------------------------------------------------------------


class Elsewhere:
    """Another cluster whose namespace of our name has an annotation, and what is written there."""

    def __init__(self, *answers: Any, bundles: bool = True) -> None:
        self.answers, self.asked, self.lines, self.waits = list(answers), list[str](), list[str](), 0
        self.has_bundles, self.authority = bundles, asyncio.Event()
        roots: Any = SimpleNamespace(resync=lambda: self.lines.append("roots changed"))
        webhooks: Any = SimpleNamespace(
            resync=lambda: self.lines.append("bundles changed"), run=lambda: self._run("bundles")
        )
        written = ClusterControllers(roots, webhooks if bundles else None)
        self.it = RemoteControllers(
            "east",
            "mesh",
            lambda client: written,
            lambda client, roots: self._run("lead"),
            self.authority,
            lambda: self,  # type: ignore[return-value]
        )

    def next_delay(self) -> float:
        self.waits += 1
        return 0.0

    async def _run(self, what: str) -> None:
        self.lines.append(what)
        try:
            await asyncio.Event().wait()
        finally:
            self.lines.append(f"end of {what}")

    async def call(self, method: str, path: str) -> bytes:
        self.asked.append(f"{method} {path}")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return msgspec.json.encode({"metadata": {"annotations": answer} if answer is not None else {}})

    async def begin(self) -> asyncio.Task[None]:
        client: Any = self
        task = asyncio.create_task(self.it.run("west", client))
        for _ in range(8):
            await asyncio.sleep(0)
        return task


WANTED = "topology.istio.io/controlPlaneClusters"


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ({WANTED: "east"}, True),
        ({WANTED: "a,east"}, True),
        ({WANTED: "*"}, True),
        ({WANTED: "eastern"}, False),
        ({}, False),
        (None, False),
        (NotFound(404, "NotFound", ""), False),
    ],
)
async def test_a_cluster_that_names_us_is_written_to(
    answer: Any, wanted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    there = Elsewhere(answer)
    there.authority.set()
    task = await there.begin()
    assert there.asked == ["GET /api/v1/namespaces/mesh"]
    assert there.lines == (["lead", "bundles"] if wanted else [])
    assert caplog.messages == (["cluster west: writing root certificates"] if wanted else [])
    assert task.done() is not wanted
    task.cancel()
    await asyncio.wait((task,))
    assert sorted(there.lines[2:]) == (["end of bundles", "end of lead"] if wanted else [])


async def test_nothing_is_written_elsewhere_before_there_are_roots_and_changes_reach_it_while_it_is() -> None:
    there = Elsewhere({WANTED: "*"})
    task = await there.begin()
    there.it.resync()
    assert there.lines == []
    there.authority.set()
    for _ in range(5):
        await asyncio.sleep(0)
    there.it.resync()
    assert there.lines == ["lead", "bundles", "roots changed", "bundles changed"]
    task.cancel()
    await asyncio.wait((task,))
    there.lines.clear()
    there.it.resync()
    assert there.lines == []


async def test_without_webhooks_there_the_roots_are_written_alone() -> None:
    there = Elsewhere({WANTED: "*"}, bundles=False)
    there.authority.set()
    task = await there.begin()
    there.it.resync()
    assert there.lines == ["lead", "roots changed"]
    task.cancel()
    await asyncio.wait((task,))


async def test_a_cluster_that_does_not_answer_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    there = Elsewhere(KubeError("503 busy"), KubeError("503 busy"), {})
    task = await there.begin()
    await task
    assert (len(there.asked), there.waits) == (3, 2)
    assert caplog.messages == ["cluster west: cannot read namespace mesh: 503 busy"] * 2
