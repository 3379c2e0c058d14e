"""Other clusters by Secrets: they join, change their credentials, break and leave while the control plane runs."""

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
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.kube_source import KubeSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.ingest.remote_cluster import RemoteCluster
from pilot.ingest.remote_clusters import Options, RemoteClusters
from pilot.ingest.remote_kubeconfig import read_kubeconfig
from pilot.kube.api_access import Credentials
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ConfigurationError
from pilot.lib.duration import parse_duration
from pilot.lib.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from testing.apiserver.server import ApiServer
from testing.apiserver.tokens import ADMIN
from testing.kube.kube_access import PATIENCE, client_of, kubeconfig, pace, until
from testing.mesh.clock import VirtualClock


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"ports": [{"port": 80}]},
    }


class Clusters:
    """An own cluster with Secrets, two others, and what is read from these."""

    def __init__(self, own: ApiServer, west: ApiServer, east: ApiServer, deadline: float = 20.0) -> None:
        self.own, self.west, self.east = own, west, east
        self.mesh, self.clock, self.problems, self.metrics = (
            Mesh(),
            VirtualClock(),
            ProblemStore(lambda _: None),
            Metrics(),
        )
        self.edits = 0
        self._batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self._committed)
        self._ledger, self._choose = Ledger(self.problems), random.Random(1)
        self.client = client_of(own)
        options = Options("Kubernetes", "istio-system", deadline=deadline)
        self.remote = RemoteClusters(
            self.client, options, self._join, self.problems, pace(), self._choose, self.metrics
        )

    def _committed(self, commit: Any) -> None:
        self.edits += len(commit.edits)

    def _join(self, cluster: str, credentials: Credentials) -> RemoteCluster:
        client = ApiClient(credentials, timeouts=PATIENCE)
        origin = DocumentOrigin(cluster, own=False)
        source = KubeSource(client, self._batch, self._ledger, 1, origin, self.mesh.catalogue, pace(), self._choose)
        return RemoteCluster(client, source, pace(), self._choose, self.metrics.cluster_status)

    def secret(self, name: str, **clusters: Any) -> None:
        """Writes a Secret; each cluster is a server, a kubeconfig, or bytes that are none."""
        metadata = {"name": name, "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}}
        data = {cluster: base64.b64encode(_text(access)).decode() for cluster, access in clusters.items()}
        self.own.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    def drop(self, name: str) -> None:
        self.own.delete({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "istio-system"}})

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
    made = [ApiServer() for _ in range(3)]
    for server, name in zip(made, ("own", "a", "b"), strict=True):
        server.put(service(name))
        await server.start()
    yield made
    for server in made:
        await server.stop()


@contextlib.asynccontextmanager
async def reading(it: Clusters) -> AsyncIterator[Clusters]:
    await it.remote.start()
    try:
        async with asyncio.timeout(20):
            await it.remote.synced()
        yield it
    finally:
        await it.remote.stop()
        await it.client.close()


async def test_clusters_join_and_leave(servers: list[ApiServer]) -> None:
    it = Clusters(*servers)
    it.secret("one", west=it.west)
    async with reading(it):
        assert it.services() == {"west/a"}
        synced = 'istiod_remote_cluster_sync_status{cluster="west",cluster_type="remote",status="synced"} 1'
        await until(lambda: it.metric(synced))
        it.secret("two", east=it.east, Kubernetes=it.own)
        await until(lambda: it.services() == {"west/a", "east/b"})
        assert it.metric('istiod_managed_clusters{cluster_type="remote"} 2')
        it.west.put(service("c"))
        await until(lambda: it.services() == {"west/a", "west/c", "east/b"})
        it.drop("one")
        await until(lambda: it.services() == {"east/b"})
        assert it.metric('istiod_remote_cluster_sync_status{cluster="west",cluster_type="remote",status="closed"} 1')
        assert it.metric('remote_cluster_secret_events_total{event="delete"} 1')


async def test_other_credentials_are_taken_without_an_edit_and_the_old_ones_used_until_then(
    servers: list[ApiServer],
) -> None:
    it = Clusters(*servers)
    it.secret("one", west=it.west)
    async with reading(it):
        assert it.services() == {"west/a"}
        before = it.edits
        it.west.tokens.service_account("istio-system", "reader", "other")
        it.secret("one", west=kubeconfig(it.west, "unknown"))
        await until(lambda: "unknown" in it.remote.clusters["west"].kubeconfig.decode())
        it.west.faults.end_watches("abort")
        it.west.put(service("c"))
        await until(lambda: it.services() == {"west/a", "west/c"}, 5)
        it.secret("one", west=kubeconfig(it.west, "other"))
        await until(lambda: "other" in it.remote.clusters["west"].kubeconfig.decode())
        it.west.tokens.by_value[ADMIN] = it.west.tokens.by_value[ADMIN]._replace(expired=True)
        it.west.faults.end_watches("abort")
        it.west.put(service("d"))
        await until(lambda: it.services() == {"west/a", "west/c", "west/d"})
        assert it.edits == before + 2


async def test_a_cluster_that_moves_to_another_server_has_what_is_there(servers: list[ApiServer]) -> None:
    it = Clusters(*servers)
    it.secret("one", west=it.west)
    async with reading(it):
        it.secret("one", west=it.east)
        await until(lambda: it.services() == {"west/b"})


@pytest.mark.parametrize("broken", [b"{", b"5", b"users: 5", b"clusters: [{name: a, cluster: 5}]", b"{}"])
async def test_a_kubeconfig_that_cannot_be_used_is_told_of_and_changes_nothing(
    servers: list[ApiServer], broken: bytes
) -> None:
    it = Clusters(*servers)
    it.secret("one", west=it.west, east=broken)
    async with reading(it):
        assert it.services() == {"west/a"}
        assert [(p.code, p.path) for p in it.problems] == [("bad-kubeconfig", "data[east]")]
        it.secret("one", west=broken, east=it.east)
        await until(lambda: it.services() == {"west/a", "east/b"})
        assert [(p.code, p.path) for p in it.problems] == [("bad-kubeconfig", "data[west]")]
        it.drop("one")
        await until(lambda: not it.services())
        assert list(it.problems) == []


async def test_of_two_secrets_the_first_has_a_cluster_until_it_goes(servers: list[ApiServer]) -> None:
    it = Clusters(*servers)
    it.secret("b", west=it.west)
    async with reading(it):
        it.secret("a", west=it.east)
        await until(lambda: len(it.remote._secrets) == 2)
        assert it.services() == {"west/a"}
        it.drop("b")
        await until(lambda: it.services() == {"west/b"})


async def test_a_cluster_that_does_not_answer_is_waited_for_only_so_long(servers: list[ApiServer]) -> None:
    it = Clusters(*servers, deadline=0.05)
    await it.west.stop()
    it.secret("one", west=it.west, east=it.east)
    async with reading(it):
        assert it.metric('remote_cluster_sync_timeouts_total{cluster="west"} 1')
        await until(lambda: it.services() == {"east/b"})
        await it.west.start()
        await until(lambda: it.services() == {"west/a", "east/b"})


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
async def test_what_runs_programs_or_reads_files_is_refused_unless_it_is_allowed(
    section: str, option: str, field: str, value: Any
) -> None:
    plain: dict[str, Any] = kubeconfig(ApiServer())
    plain[section][0][section[:-1]][field] = value
    data = yaml.safe_dump(plain).encode()
    with pytest.raises(ConfigurationError, match=option):
        read_kubeconfig(data)
    read_kubeconfig(data, (option,))
