"""Reviews of access to Secrets, by the API server and through a whole control plane."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import yaml
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from ca.self_signed import make_root
from ca.store import FolderStore
from pilot.bootstrap.clusters.access_reviews import SecretAccessReview
from pilot.kube.api_errors import KubeError
from pilot.kube.reviews import can_list_secrets
from pilot.lib.xds_types import SECRET
from pilot.mesh.tables.database import AccountKey
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.clients.secure_client import ClientCertificate, SecureClient
from testing.kube.kube_access import client_of, until, write_kubeconfig
from testing.processes.agent_stub import Root
from testing.security.credentials import Authority, tls_secret
from tests.unit.bootstrap.test_kube_control_plane import running

ONLY_EDGE = "system:serviceaccount:edge:edge"
CA = Authority()
WEB = CA.issue("web.example.com")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    for definition in definitions():
        api_server.put(definition)
    api_server.tokens.authorizer = only_edge
    await api_server.start()
    yield api_server
    await api_server.stop()


def only_edge(user: str, _: Sequence[str], attributes: Mapping[str, Any]) -> bool:
    return (user, attributes["verb"], attributes["resource"], attributes["namespace"]) == (
        ONLY_EDGE,
        "list",
        "secrets",
        "edge",
    )


async def test_only_permitted_accounts_can_list_secrets(server: ApiServer) -> None:
    client = client_of(server)
    try:
        assert await can_list_secrets(client, "edge", "edge")
        assert not await can_list_secrets(client, "edge", "other")
        assert not await can_list_secrets(client, "far", "edge")
        await server.stop()
        with pytest.raises(KubeError):
            await can_list_secrets(client, "edge", "edge")
        await server.start()
    finally:
        await client.close()


async def test_remote_accounts_are_allowed_only_for_configured_clusters(server: ApiServer) -> None:
    client = client_of(server)
    try:
        review = SecretAccessReview(client, "own", ["own", "west"])
        assert await review(AccountKey("own", "edge", "edge"))
        assert not await review(AccountKey("own", "edge", "other"))
        assert await review(AccountKey("west", "edge", "other"))
        assert not await review(AccountKey("nowhere", "edge", "edge"))
    finally:
        await client.close()


async def test_gateway_receives_a_secret_only_if_its_account_may_read_it(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    server.apply(yaml.safe_dump(tls_secret("web", WEB, ca_crt=CA.pem)))
    ca, path = tmp_path / "ca", write_kubeconfig(server, tmp_path / "config")
    now = datetime.datetime.now(datetime.UTC)
    FolderStore(str(ca)).save(make_root("cluster.local", datetime.timedelta(days=1), now, 2048))
    root = Root.load(ca)
    async with running(kubeconfig=str(path), caDir=str(ca), secureGRPCAddr="127.0.0.1:0") as process:
        await until(lambda: process.plane.ready or process.task.done())
        port = process.plane.ports["secure xDS"].number
        for account, expected in (
            ("edge", {"kubernetes://web", "kubernetes://web-cacert"}),
            ("other", {"kubernetes://web-cacert"}),
        ):
            certificate = ClientCertificate(*root.issue(f"spiffe://cluster.local/ns/edge/sa/{account}"))
            node = f"router~10.0.0.7~{account}-0.edge~edge.svc.cluster.local"
            async with SecureClient(
                port, root.pem, certificate, node_id=node, NAMESPACE="edge", SERVICE_ACCOUNT=account
            ) as client:
                await client.request("sds", "kubernetes://web", "kubernetes://web-cacert")
                response = await client.receive()
                assert response.type_url == SECRET
                assert {
                    secret_pb2.Secret.FromString(resource.resource.value).name for resource in response.resources
                } == expected
