"""Sources that the mesh config names: read at the start, then watched."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import grpc
import pytest
import yaml

from pilot.bootstrap.config_sources import server_credentials, server_name
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.lib.backoff import Backoff
from pilot.mcp.stream import McpClient, McpEndpoint, McpStream
from testing.control_planes.secure_plane import Running, running
from testing.kube.kube_access import chance, until
from testing.security.credentials import Authority
from testing.servers.mcp_server import McpServer

NO_AUTHORITY = {"ENABLE_CA_SERVER": "false"}
ENTRY = "networking.istio.io/v1/ServiceEntry"


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
        [ENTRY],
        accept,
        statuses.append,
        Backoff(5.0),
        chance(1),
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
