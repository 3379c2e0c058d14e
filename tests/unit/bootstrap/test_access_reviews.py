"""Which service accounts may read Secrets, by an API server: asked as they are, and through a whole control plane."""

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
from testing.clients.secure_client import SecureClient, Shown
from testing.kube.kube_access import client_of, until, write_kubeconfig
from testing.processes.agent_stub import Root
from testing.security.credentials import Authority, tls_secret
from tests.unit.bootstrap.test_kube_control_plane import running

ONLY_EDGE = "system:serviceaccount:edge:edge"
CA = Authority()
WEB = CA.issue("web.example.com")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    for plain in definitions():
        made.put(plain)
    made.tokens.allows = only_edge
    await made.start()
    yield made
    await made.stop()


def only_edge(user: str, _: Sequence[str], what: Mapping[str, Any]) -> bool:
    return (user, what["verb"], what["resource"], what["namespace"]) == (ONLY_EDGE, "list", "secrets", "edge")


async def test_the_api_server_says_which_account_may_list_secrets(server: ApiServer) -> None:
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


async def test_of_another_cluster_its_files_are_believed_and_nothing_else(server: ApiServer) -> None:
    client = client_of(server)
    try:
        review = SecretAccessReview(client, "own", ["own", "west"])
        assert await review(AccountKey("own", "edge", "edge"))
        assert not await review(AccountKey("own", "edge", "other"))
        assert await review(AccountKey("west", "edge", "other"))
        assert not await review(AccountKey("nowhere", "edge", "edge"))
    finally:
        await client.close()


async def test_a_gateway_gets_its_secret_if_its_account_may_read_it(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.apply(yaml.safe_dump(tls_secret("web", WEB, ca_crt=CA.pem)))
    ca, path = tmp_path / "ca", write_kubeconfig(server, tmp_path / "config")
    now = datetime.datetime.now(datetime.UTC)
    FolderStore(str(ca)).save(make_root("cluster.local", datetime.timedelta(days=1), now, 2048))
    root = Root.load(ca)
    async with running(kubeconfig=str(path), caDir=str(ca), secureGRPCAddr="127.0.0.1:0") as it:
        await until(lambda: it.plane.ready or it.task.done())
        port = it.plane.ports["secure xDS"].number
        for account, expected in (
            ("edge", {"kubernetes://web", "kubernetes://web-cacert"}),
            ("other", {"kubernetes://web-cacert"}),
        ):
            shown = Shown(*root.issue(f"spiffe://cluster.local/ns/edge/sa/{account}"))
            node = f"router~10.0.0.7~{account}-0.edge~edge.svc.cluster.local"
            async with SecureClient(
                port, root.pem, shown, node_id=node, NAMESPACE="edge", SERVICE_ACCOUNT=account
            ) as client:
                await client.ask("sds", "kubernetes://web", "kubernetes://web-cacert")
                response = await client.take()
                assert response.type_url == SECRET
                assert {
                    secret_pb2.Secret.FromString(resource.resource.value).name for resource in response.resources
                } == expected
