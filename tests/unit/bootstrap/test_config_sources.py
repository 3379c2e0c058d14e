"""Sources that the mesh config names: read at the start, then watched."""

from __future__ import annotations

import asyncio
import logging
import pathlib
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import yaml
from msgspec.structs import replace

from pilot.bootstrap import config_sources
from pilot.bootstrap.clusters.api_servers import IngestTarget
from pilot.bootstrap.config_sources import RANK_STEP, ConfigSources, server_credentials, server_name
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.mesh.mesh_config import ConfigSource, MeshConfig
from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.problems import ProblemStore
from pilot.lib.backoff import Backoff
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.mcp import stream
from pilot.mcp.stream import CannotConnectError, McpClient, McpEndpoint, McpStream
from pilot.settings.parse import load
from testing.control_planes.secure_plane import Running, running
from testing.kube.kube_access import make_rng, until
from testing.mesh.part_recorder import PartRecorder
from testing.security.credentials import Authority
from testing.servers.mcp_server import McpServer

NO_AUTHORITY = {"ENABLE_CA_SERVER": "false"}
ENTRY_TYPE = "networking.istio.io/v1/ServiceEntry"


def entry(name: str, number: int) -> dict[str, Any]:
    ports = [{"number": number, "name": "http", "protocol": "HTTP"}]
    spec = {"hosts": [f"{name}.example.com"], "resolution": "NONE", "ports": ports}
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "ServiceEntry",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec,
    }


def mesh(folder: pathlib.Path, *addresses: str) -> str:
    path = folder / "mesh.yaml"
    path.write_text(yaml.safe_dump({"configSources": [{"address": address} for address in addresses]}))
    return str(path)


def ports(process: Running) -> dict[str, int]:
    return {key.name: row.spec.ports[0].number for key, row in SERVICE_ENTRY.table(process.plane.db).rows()}


async def test_first_config_source_wins_for_duplicate_objects(tmp_path: pathlib.Path) -> None:
    folder, server = tmp_path / "more", McpServer()
    folder.mkdir()
    (folder / "a.yaml").write_text(yaml.safe_dump_all([entry("a", 1), entry("b", 1)]))
    for resource in (entry("b", 2), entry("c", 2)):
        server.put(resource)
    await server.start()
    for addresses, b in (
        ([f"fs://{folder}", f"xds://127.0.0.1:{server.port}"], 1),
        ([f"xds://127.0.0.1:{server.port}", f"fs://{folder}"], 2),
    ):
        async with running(tmp_path, NO_AUTHORITY, secureGRPCAddr="", meshConfig=mesh(tmp_path, *addresses)) as process:
            assert ports(process) == {"a": 1, "b": b, "c": 2}
            assert [(p.code, p.object.name) for p in process.plane.problems] == [("duplicate-object", "b")]
    nodes = [request.node for request in server.requests if request.HasField("node")]
    assert {node.id for node in nodes} == {"sidecar~127.0.0.1~pyistiod.istio-system~istio-system.svc.cluster.local"}
    assert {node.metadata["NAMESPACE"] for node in nodes} == {"istio-system"}
    await server.stop()


async def test_readiness_waits_for_the_config_server(tmp_path: pathlib.Path) -> None:
    server = McpServer()
    await server.start()
    await server.stop()
    server.put(entry("a", 1))

    async def restart() -> None:
        await asyncio.sleep(0)
        await server.start()

    restart_task = asyncio.create_task(restart())
    async with running(
        tmp_path, NO_AUTHORITY, secureGRPCAddr="", meshConfig=mesh(tmp_path, f"xds://127.0.0.1:{server.port}")
    ) as process:
        assert (process.plane.ready, ports(process)) == (True, {"a": 1})
    await restart_task
    await server.stop()


async def test_changed_sources_need_a_restart(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    async with running(
        tmp_path, NO_AUTHORITY, secureGRPCAddr="", meshConfig=mesh(tmp_path, f"fs://{folder}")
    ) as process:
        config = process.plane._mesh_config()
        process.plane._config_sources.on_mesh_config(type(config)())
        assert [(p.code, p.path) for p in process.plane.problems] == [("needs-restart", "configSources")]
        process.plane._config_sources.on_mesh_config(config)
        assert list(process.plane.problems) == []


# -- TLS -------------------------------------------------------------------------------------------------------------------


async def first_status(port: int, tls: ClientTLSSettings, secret: dict[str, bytes]) -> str:
    """Return the first status of a stream: "" if it connected, else the error."""
    statuses: list[str] = []

    async def read(_: str) -> dict[str, bytes]:
        return secret

    async def accept(*_: Any) -> list[str]:
        return []

    target = McpEndpoint(f"127.0.0.1:{port}", lambda: server_credentials(tls, read), server_name(tls))
    stream = McpStream(
        target,
        McpClient("sidecar~127.0.0.1~a.b~b.svc.cluster.local", "b"),
        [ENTRY_TYPE],
        accept,
        statuses.append,
        Backoff(5.0),
        make_rng(1),
    )
    await stream.start()
    try:
        await until(lambda: bool(statuses))
    finally:
        await stream.stop()
    return statuses[0]


@pytest.mark.parametrize("mutual", [False, True])
async def test_config_server_is_verified_with_the_roots_of_its_source(tmp_path: pathlib.Path, mutual: bool) -> None:
    authority, other = Authority(), Authority("other")
    server_certificate, client_pair = authority.issue("mcp.example.com"), authority.issue("istiod")
    pair = [(server_certificate.private_key, server_certificate.chain)]
    server = McpServer(grpc.ssl_server_credentials(pair, authority.pem if mutual else None, require_client_auth=mutual))
    await server.start()
    files = {
        "root.pem": authority.pem,
        "other.pem": other.pem,
        "cert.pem": client_pair.chain,
        "key.pem": client_pair.private_key,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)

    def tls(roots: str = "root.pem", name: str = "mcp.example.com", **more: Any) -> ClientTLSSettings:
        client_certificate = (
            {"client_certificate": str(tmp_path / "cert.pem"), "private_key": str(tmp_path / "key.pem")}
            if mutual
            else {}
        )
        options = {"ca_certificates": str(tmp_path / roots), **client_certificate, **more}
        return ClientTLSSettings(mode="MUTUAL" if mutual else "SIMPLE", sni=name, **options)

    assert await first_status(server.port, tls(), {}) == ""
    assert await first_status(server.port, tls(name="", subject_alt_names=("mcp.example.com",)), {}) == ""
    assert "UNAVAILABLE" in await first_status(server.port, tls(roots="other.pem"), {})
    assert "UNAVAILABLE" in await first_status(server.port, tls(name="else.example.com"), {})
    assert "No such file" in await first_status(server.port, tls(roots="missing.pem"), {})
    if not mutual:
        by_secret = tls(ca_certificates="", credential_name="roots")
        assert await first_status(server.port, by_secret, {"cacert": authority.pem}) == ""
        assert await first_status(server.port, by_secret, {"ca.crt": authority.pem}) == ""
        assert await first_status(server.port, by_secret, {}) == "there is no Secret roots with cacert or ca.crt"
    else:
        assert "UNAVAILABLE" in await first_status(server.port, tls(client_certificate=""), {})
    await server.stop()


class Channels:
    """Replaces channel credentials by their arguments."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.secrets: dict[str, dict[str, bytes]] = {}
        patch.setattr(grpc, "ssl_channel_credentials", lambda *args: args)

    async def read(self, name: str) -> dict[str, bytes]:
        return self.secrets.get(name, {})

    async def credentials(self, has_secrets: bool = True, **options: Any) -> Any:
        return await server_credentials(ClientTLSSettings(**options), self.read if has_secrets else None)


async def test_credentials_come_from_files_and_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    channels = Channels(monkeypatch)
    files = {name: str(tmp_path / name) for name in ("roots", "chain", "key")}
    for name, path in files.items():
        pathlib.Path(path).write_text(name)
    by_files: Any = {
        "ca_certificates": files["roots"],
        "client_certificate": files["chain"],
        "private_key": files["key"],
    }
    assert await server_credentials(None, channels.read) is None
    assert await channels.credentials(mode="DISABLE", **by_files) is None
    assert await channels.credentials(mode="SIMPLE", **by_files) == (b"roots",)
    assert await channels.credentials(mode="MUTUAL", **by_files) == (b"roots", b"key", b"chain")
    assert await channels.credentials(mode="MUTUAL", ca_certificates=files["roots"]) == (b"roots",)
    channels.secrets = {"both": {"cacert": b"first", "ca.crt": b"second"}, "one": {"cacert": b"", "ca.crt": b"second"}}
    assert await channels.credentials(mode="SIMPLE", credential_name="both", **by_files) == (b"first",)
    assert await channels.credentials(mode="SIMPLE", credential_name="one") == (b"second",)
    for name, has_secrets in (("none", True), ("both", False)):
        with pytest.raises(CannotConnectError, match=f"^there is no Secret {name} with cacert or ca.crt$"):
            await channels.credentials(has_secrets, mode="SIMPLE", credential_name=name)
    with pytest.raises(CannotConnectError, match=r"^/nowhere: No such file or directory$"):
        await channels.credentials(mode="SIMPLE", ca_certificates="/nowhere")


def test_server_name_comes_from_the_tls_settings() -> None:
    assert server_name(None) == ""
    assert server_name(ClientTLSSettings(mode="DISABLE", sni="a.com")) == ""
    assert server_name(ClientTLSSettings(mode="SIMPLE", sni="a.com")) == "a.com"
    assert server_name(ClientTLSSettings(mode="MUTUAL", sni="a.com", subject_alt_names=("b.com", "c.com"))) == "b.com"
    assert server_name(ClientTLSSettings(mode="SIMPLE")) == ""


# -- opening and loading -----------------------------------------------------------------------------------------------

ENTRY, SECRET = GroupKind("networking.istio.io", "ServiceEntry"), GroupKind("", "Secret")
WORKLOAD = GroupKind("networking.istio.io", "WorkloadEntry")
KINDS = [SimpleNamespace(id=kind, is_over_xds=kind != SECRET) for kind in (ENTRY, SECRET, WORKLOAD)]
PARSER: Any = object()


def ledger_source(rank: int, name: str) -> tuple[str, int, str]:
    return "part", rank, name


def target() -> IngestTarget:
    ledger: Any = SimpleNamespace(source=ledger_source)
    mesh: Any = object()
    batch: Any = object()
    kinds: Any = KINDS
    return IngestTarget(mesh, kinds, batch, ledger, ProblemStore(), Metrics(), PARSER)


class Sources:
    """Config sources with stand-ins. Each folder has two files."""

    def __init__(self, patch: pytest.MonkeyPatch, environ: dict[str, str] | None = None) -> None:
        self.journal, self.target, self.settings = PartRecorder(), target(), load([], environ or {}).settings
        self.journal.replace_classes(patch, config_sources, "FileSource", "McpSource")
        stream_stand_in = self.journal._fake_factory("McpStream")
        patch.setattr(stream, "McpStream", stream_stand_in)

        async def read(_: str) -> dict[str, bytes]:
            return {}

        self.read = read
        self.sources = ConfigSources(self.settings, self.target, 100, read)

    def open(self, *addresses: str) -> None:
        self.sources.open([ConfigSource(address=address) for address in addresses])
        for folder in self.sources.folders:
            folder.load_initial = lambda: 2  # type: ignore[method-assign]
        for source, _ in self.sources.servers:
            source.synced = asyncio.Event()
            source.name = "xds://server"


@pytest.mark.parametrize(
    ("addresses", "ranks", "has_kubernetes"),
    [
        (["fs:///a", "fs:///b"], [100, 100 + RANK_STEP], False),
        (["k8s://", "fs:///a"], [100 + RANK_STEP], True),
        (["fs:///a", "fs:///b", "k8s://", "fs:///c"], [100 - 2 * RANK_STEP, 100 - RANK_STEP, 100 + RANK_STEP], True),
        (["nonsense", "fs:///a"], [100], False),
        ([], [], False),
    ],
)
def test_folder_ranks_follow_the_configured_order(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], ranks: list[int], has_kubernetes: bool
) -> None:
    sources = Sources(monkeypatch)
    sources.open(*addresses)
    assert [args[2][1] for args in sources.journal.args_of("FileSource")] == ranks
    assert sources.sources.has_kubernetes is has_kubernetes
    assert RANK_STEP >= 2, "remote clusters take the next rank"


def test_folder_source_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(
        monkeypatch,
        {"PILOT_MAX_CONFIG_FILE_BYTES": "77", "PILOT_STATE_DIR": "/state", "REVISION": "blue", "CLUSTER_ID": "east"},
    )
    sources.open("fs:///folder")
    origin = DocumentOrigin("east", True, "blue")
    assert sources.journal.args_of("FileSource") == [
        ("/folder", sources.target.batch, ("part", 100, "/folder"), origin, KINDS, 77, "/state", PARSER)
    ]


async def test_config_server_request(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(monkeypatch, {"POD_NAME": "istiod-1", "POD_NAMESPACE": "mesh", "REVISION": "blue"})
    tls: Any = SimpleNamespace(mode="SIMPLE", subject_alt_names=("mcp.example.com",), credential_name="roots", sni="")
    sources.sources.open([replace(ConfigSource(address="xds://host:15051"), tls_settings=tls)])
    [(name, kinds, batch, ledger, rank, origin, problems)] = sources.journal.args_of("McpSource")
    assert (name, batch, ledger, rank, origin, problems) == (
        "xds://host:15051",
        sources.target.batch,
        sources.target.ledger,
        100,
        DocumentOrigin("Kubernetes", True, "blue"),
        sources.target.problems,
    )
    assert [kind.id for kind in kinds] == [ENTRY, WORKLOAD], "Secrets are not requested from config servers"
    [(endpoint, client, types, on_response, on_status, backoff, _)] = sources.journal.args_of("McpStream")
    assert (endpoint.address, endpoint.server_name) == ("host:15051", "mcp.example.com")
    assert client == McpClient("sidecar~127.0.0.1~istiod-1.mesh~mesh.svc.cluster.local", "mesh", "blue")
    assert backoff == Backoff(0.5, 30.0)
    with pytest.raises(CannotConnectError, match=r"there is no Secret roots with cacert or ca.crt"):
        await endpoint.credentials()
    assert (callable(types), callable(on_response), callable(on_status)) == (True, True, True)


async def test_load_waits_for_all_sources(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    sources = Sources(monkeypatch)
    sources.open("fs:///a", "fs:///b", "xds://one:1", "xds://two:2")
    sources.sources.servers[1][0].synced.set()
    load_task = asyncio.create_task(sources.sources.load())
    while not caplog.messages:
        await asyncio.sleep(0.001)
    assert not load_task.done()
    sources.sources.servers[0][0].synced.set()
    assert await load_task == 4
    assert caplog.messages == ["waiting for xds://server"], "the other server is already synced"
    assert sources.journal.lines == ["McpStream.start"] * 2
    await sources.sources.watch()
    assert sources.journal.lines[2:] == ["FileSource.start"] * 2
    await sources.sources.stop()
    assert sources.journal.lines[4:] == ["FileSource.stop", "FileSource.stop", "McpStream.stop", "McpStream.stop"]


async def test_unreadable_folder_aborts_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(monkeypatch)
    sources.open("fs:///a")

    def fail() -> int:
        raise FileNotFoundError(2, "No such file or directory", "/a")

    sources.sources.folders[0].load_initial = fail  # type: ignore[method-assign]
    with pytest.raises(StartError, match=r"^configSources: /a: No such file or directory$"):
        await sources.sources.load()


def test_changed_sources_are_reported_until_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, mesh = Sources(monkeypatch), MeshConfig()
    sources.open("fs:///a")
    same = replace(mesh, config_sources=(ConfigSource(address="fs:///a"),))
    sources.sources.on_mesh_config(same)
    assert list(sources.target.problems) == []
    sources.sources.on_mesh_config(mesh)
    [problem] = sources.target.problems
    assert (problem.code, problem.path, str(problem.severity)) == ("needs-restart", "configSources", "warning")
    sources.sources.on_mesh_config(same)
    assert list(sources.target.problems) == []
