"""The sources that the mesh config names: a process reads them at its start, and follows them."""

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


def ports(it: Running) -> dict[str, int]:
    return {key.name: row.spec.ports[0].number for key, row in SERVICE_ENTRY.table(it.plane.db).rows()}


async def test_folders_and_servers_are_sources_and_the_first_has_what_two_declare(tmp_path: pathlib.Path) -> None:
    folder, server = tmp_path / "more", McpServer()
    folder.mkdir()
    (folder / "a.yaml").write_text(yaml.safe_dump_all([entry("a", 1), entry("b", 1)]))
    for made in (entry("b", 2), entry("c", 2)):
        server.put(made)
    await server.start()
    for addresses, b in (
        ([f"fs://{folder}", f"xds://127.0.0.1:{server.port}"], 1),
        ([f"xds://127.0.0.1:{server.port}", f"fs://{folder}"], 2),
    ):
        async with running(tmp_path, NO_AUTHORITY, secureGRPCAddr="", meshConfig=mesh(tmp_path, *addresses)) as it:
            assert ports(it) == {"a": 1, "b": b, "c": 2}
            assert [(p.code, p.object.name) for p in it.plane.problems] == [("duplicate-object", "b")]
    told = [request.node for request in server.requests if request.HasField("node")]
    assert {node.id for node in told} == {"sidecar~127.0.0.1~pyistiod.istio-system~istio-system.svc.cluster.local"}
    assert {node.metadata["NAMESPACE"] for node in told} == {"istio-system"}
    await server.stop()


async def test_a_process_is_not_ready_before_a_server_has_answered(tmp_path: pathlib.Path) -> None:
    server = McpServer()
    await server.start()
    await server.stop()
    server.put(entry("a", 1))

    async def come_back() -> None:
        await asyncio.sleep(0)
        await server.start()

    coming = asyncio.create_task(come_back())
    async with running(
        tmp_path, NO_AUTHORITY, secureGRPCAddr="", meshConfig=mesh(tmp_path, f"xds://127.0.0.1:{server.port}")
    ) as it:
        assert (it.plane.ready, ports(it)) == (True, {"a": 1})
    await coming
    await server.stop()


async def test_other_sources_are_told_of_until_the_next_start(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    async with running(tmp_path, NO_AUTHORITY, secureGRPCAddr="", meshConfig=mesh(tmp_path, f"fs://{folder}")) as it:
        config = it.plane._mesh_config()
        it.plane._config_sources.on_mesh_config(type(config)())
        assert [(p.code, p.path) for p in it.plane.problems] == [("needs-restart", "configSources")]
        it.plane._config_sources.on_mesh_config(config)
        assert list(it.plane.problems) == []


# -- TLS -------------------------------------------------------------------------------------------------------------------


async def told(port: int, tls: ClientTLSSettings, secret: dict[str, bytes]) -> str:
    """The first thing that is told of a stream: "" where there is one, else why there is none."""
    found: list[str] = []

    async def read(_: str) -> dict[str, bytes]:
        return secret

    async def take(*_: Any) -> list[str]:
        return []

    target = McpEndpoint(f"127.0.0.1:{port}", lambda: server_credentials(tls, read), server_name(tls))
    stream = McpStream(
        target,
        McpClient("sidecar~127.0.0.1~a.b~b.svc.cluster.local", "b"),
        [ENTRY],
        take,
        found.append,
        Backoff(5.0),
        chance(1),
    )
    await stream.start()
    try:
        await until(lambda: bool(found))
    finally:
        await stream.stop()
    return found[0]


@pytest.mark.parametrize("mutual", [False, True])
async def test_a_server_is_verified_by_the_roots_of_its_source(tmp_path: pathlib.Path, mutual: bool) -> None:
    authority, other = Authority(), Authority("other")
    issued, own = authority.issue("mcp.example.com"), authority.issue("istiod")
    pair = [(issued.private_key, issued.chain)]
    server = McpServer(grpc.ssl_server_credentials(pair, authority.pem if mutual else None, require_client_auth=mutual))
    await server.start()
    files = {"root.pem": authority.pem, "other.pem": other.pem, "cert.pem": own.chain, "key.pem": own.private_key}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)

    def tls(roots: str = "root.pem", name: str = "mcp.example.com", **more: Any) -> ClientTLSSettings:
        shown = (
            {"client_certificate": str(tmp_path / "cert.pem"), "private_key": str(tmp_path / "key.pem")}
            if mutual
            else {}
        )
        found = {"ca_certificates": str(tmp_path / roots), **shown, **more}
        return ClientTLSSettings(mode="MUTUAL" if mutual else "SIMPLE", sni=name, **found)

    assert await told(server.port, tls(), {}) == ""
    assert await told(server.port, tls(name="", subject_alt_names=("mcp.example.com",)), {}) == ""
    assert "UNAVAILABLE" in await told(server.port, tls(roots="other.pem"), {})
    assert "UNAVAILABLE" in await told(server.port, tls(name="else.example.com"), {})
    assert "No such file" in await told(server.port, tls(roots="missing.pem"), {})
    if not mutual:
        by_secret = tls(ca_certificates="", credential_name="roots")
        assert await told(server.port, by_secret, {"cacert": authority.pem}) == ""
        assert await told(server.port, by_secret, {"ca.crt": authority.pem}) == ""
        assert await told(server.port, by_secret, {}) == "there is no Secret roots with cacert or ca.crt"
    else:
        assert "UNAVAILABLE" in await told(server.port, tls(client_certificate=""), {})
    await server.stop()
