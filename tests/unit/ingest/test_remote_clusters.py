"""Remote clusters from Secrets: join, credential changes, failure and removal at run time."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from pilot.config.kinds.kubernetes import SERVICE
from pilot.ingest.batch import Batch
from pilot.ingest.cluster.kube_source import KubeSource
from pilot.ingest.cluster.remote_cluster import RemoteCluster
from pilot.ingest.cluster.remote_clusters import Options, RemoteClusters
from pilot.ingest.cluster.remote_kubeconfig import read_kubeconfig
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_access import Credentials
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ConfigurationError
from pilot.lib.duration import parse_duration
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from testing.apiserver.server import ApiServer
from testing.apiserver.tokens import ADMIN
from testing.kube.kube_access import TIMEOUTS, client_of, kubeconfig, until, watch_options
from testing.mesh.clock import VirtualClock


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"ports": [{"port": 80}]},
    }


class Clusters:
    """A config cluster with Secrets, two remote clusters, and the tables filled from them."""

    def __init__(self, home: ApiServer, west: ApiServer, east: ApiServer, deadline: float = 20.0) -> None:
        self.home, self.west, self.east = home, west, east
        self.mesh, self.clock, self.problems, self.metrics = (
            Mesh(),
            VirtualClock(),
            ProblemStore(lambda _: None),
            Metrics(),
        )
        self.edits = 0
        self._batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self._committed)
        self._ledger, self._rng = Ledger(self.problems), random.Random(1)
        self.client = client_of(home)
        options = Options("Kubernetes", "istio-system", deadline=deadline)
        self.remote = RemoteClusters(
            self.client, options, self.join, self.problems, watch_options(), self._rng, self.metrics
        )

    def _committed(self, commit: Any) -> None:
        self.edits += len(commit.edits)

    def join(self, cluster: str, credentials: Credentials) -> RemoteCluster:
        client = ApiClient(credentials, timeouts=TIMEOUTS)
        origin = DocumentOrigin(cluster, own=False)
        source = KubeSource(
            client, self._batch, self._ledger, 1, origin, self.mesh.catalogue, watch_options(), self._rng
        )
        return RemoteCluster(client, source, watch_options(), self._rng, self.metrics.cluster_status)

    def secret(self, name: str, **clusters: Any) -> None:
        """Write a Secret that maps each cluster to a server, a kubeconfig or invalid bytes."""
        metadata = {"name": name, "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}}
        data = {cluster: base64.b64encode(_text(access)).decode() for cluster, access in clusters.items()}
        self.home.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    def delete_secret(self, name: str) -> None:
        self.home.delete(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "istio-system"}}
        )

    def services(self) -> set[str]:
        self.clock.advance(1)
        return {f"{key.cluster}/{key.name}" for key, _ in SERVICE.table(self.mesh).rows()}

    def metric(self, line: str) -> bool:
        return line in self.metrics.exposition().decode().splitlines()


def _text(access: Any) -> bytes:
    if isinstance(access, bytes):
        return access
    return yaml.safe_dump(kubeconfig(access) if isinstance(access, ApiServer) else access).encode()


@pytest.fixture
async def servers() -> AsyncIterator[list[ApiServer]]:
    api_servers = [ApiServer() for _ in range(3)]
    for server, name in zip(api_servers, ("home", "a", "b"), strict=True):
        server.put(service(name))
        await server.start()
    yield api_servers
    for server in api_servers:
        await server.stop()


@contextlib.asynccontextmanager
async def reading(clusters: Clusters) -> AsyncIterator[Clusters]:
    await clusters.remote.start()
    try:
        async with asyncio.timeout(20):
            await clusters.remote.synced()
        yield clusters
    finally:
        await clusters.remote.stop()
        await clusters.client.close()


async def test_clusters_join_and_leave(servers: list[ApiServer]) -> None:
    clusters = Clusters(*servers)
    clusters.secret("one", west=clusters.west)
    async with reading(clusters):
        assert clusters.services() == {"west/a"}
        synced = 'istiod_remote_cluster_sync_status{cluster="west",cluster_type="remote",status="synced"} 1'
        await until(lambda: clusters.metric(synced))
        clusters.secret("two", east=clusters.east, Kubernetes=clusters.home)
        await until(lambda: clusters.services() == {"west/a", "east/b"})
        assert clusters.metric('istiod_managed_clusters{cluster_type="remote"} 2')
        clusters.west.put(service("c"))
        await until(lambda: clusters.services() == {"west/a", "west/c", "east/b"})
        clusters.delete_secret("one")
        await until(lambda: clusters.services() == {"east/b"})
        assert clusters.metric(
            'istiod_remote_cluster_sync_status{cluster="west",cluster_type="remote",status="closed"} 1'
        )
        assert clusters.metric('remote_cluster_secret_events_total{event="delete"} 1')


async def test_rotated_credentials_apply_without_edits(
    servers: list[ApiServer],
) -> None:
    clusters = Clusters(*servers)
    clusters.secret("one", west=clusters.west)
    async with reading(clusters):
        assert clusters.services() == {"west/a"}
        before = clusters.edits
        clusters.west.tokens.service_account("istio-system", "reader", "other")
        clusters.secret("one", west=kubeconfig(clusters.west, "unknown"))
        await until(lambda: "unknown" in clusters.remote.clusters["west"].kubeconfig.decode())
        clusters.west.faults.end_watches("abort")
        clusters.west.put(service("c"))
        await until(lambda: clusters.services() == {"west/a", "west/c"}, 5)
        clusters.secret("one", west=kubeconfig(clusters.west, "other"))
        await until(lambda: "other" in clusters.remote.clusters["west"].kubeconfig.decode())
        clusters.west.tokens.by_value[ADMIN] = clusters.west.tokens.by_value[ADMIN]._replace(expired=True)
        clusters.west.faults.end_watches("abort")
        clusters.west.put(service("d"))
        await until(lambda: clusters.services() == {"west/a", "west/c", "west/d"})
        assert clusters.edits == before + 2


async def test_cluster_can_move_to_another_server(servers: list[ApiServer]) -> None:
    clusters = Clusters(*servers)
    clusters.secret("one", west=clusters.west)
    async with reading(clusters):
        clusters.secret("one", west=clusters.east)
        await until(lambda: clusters.services() == {"west/b"})


@pytest.mark.parametrize("broken", [b"{", b"5", b"users: 5", b"clusters: [{name: a, cluster: 5}]", b"{}"])
async def test_unusable_kubeconfig_is_reported_and_ignored(servers: list[ApiServer], broken: bytes) -> None:
    clusters = Clusters(*servers)
    clusters.secret("one", west=clusters.west, east=broken)
    async with reading(clusters):
        assert clusters.services() == {"west/a"}
        assert [(p.code, p.path) for p in clusters.problems] == [("bad-kubeconfig", "data[east]")]
        clusters.secret("one", west=broken, east=clusters.east)
        await until(lambda: clusters.services() == {"west/a", "east/b"})
        assert [(p.code, p.path) for p in clusters.problems] == [("bad-kubeconfig", "data[west]")]
        clusters.delete_secret("one")
        await until(lambda: not clusters.services())
        assert list(clusters.problems) == []


async def test_first_secret_owns_a_cluster_until_deleted(servers: list[ApiServer]) -> None:
    clusters = Clusters(*servers)
    clusters.secret("b", west=clusters.west)
    async with reading(clusters):
        clusters.secret("a", west=clusters.east)
        await until(lambda: clusters.metric('remote_cluster_secret_events_total{event="add"} 2'))
        assert clusters.services() == {"west/a"}
        clusters.delete_secret("b")
        await until(lambda: clusters.services() == {"west/b"})


async def test_start_does_not_wait_for_an_unreachable_cluster_past_the_deadline(servers: list[ApiServer]) -> None:
    clusters = Clusters(*servers, deadline=0.05)
    await clusters.west.stop()
    clusters.secret("one", west=clusters.west, east=clusters.east)
    async with reading(clusters):
        assert clusters.metric('remote_cluster_sync_timeouts_total{cluster="west"} 1')
        await until(lambda: clusters.services() == {"east/b"})
        await clusters.west.start()
        await until(lambda: clusters.services() == {"west/a", "east/b"})


@pytest.mark.parametrize(
    ("section", "option", "field", "value"),
    [
        ("users", "exec", "exec", {"command": "sh"}),
        ("users", "authProvider", "auth-provider", {"name": "oidc"}),
        ("users", "clientCertificate", "client-certificate", "/etc/passwd"),
        ("users", "clientKey", "client-key", "/etc/passwd"),
        ("users", "tokenFile", "tokenFile", "/etc/passwd"),
        ("clusters", "certificateAuthority", "certificate-authority", "/etc/passwd"),
        ("clusters", "insecureSkipTLSVerify", "insecure-skip-tls-verify", True),
    ],
)
async def test_unsafe_kubeconfig_options_must_be_allowed(section: str, option: str, field: str, value: Any) -> None:
    plain: dict[str, Any] = kubeconfig(ApiServer())
    plain[section][0][section[:-1]][field] = value
    data = yaml.safe_dump(plain).encode()
    with pytest.raises(ConfigurationError, match=option):
        read_kubeconfig(data)
    read_kubeconfig(data, (option,))
