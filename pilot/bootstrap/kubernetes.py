"""API servers: what is read from them and asked of them, by the settings."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.bootstrap.authentication import own_names
from pilot.bootstrap.reviewers import ClusterReviewers
from pilot.bootstrap.secret_store import CACERTS, NAME, SecretStore
from pilot.config.catalogue import Catalogue
from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.ingest.batch import Batch
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.kube_mesh import MESH_ROW, NETWORKS_ROW, MeshConfigMaps
from pilot.ingest.kube_source import KubeSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.ingest.remote_cluster import RemoteCluster
from pilot.ingest.remote_clusters import Options, RemoteClusters
from pilot.kube.access import Credentials, InCluster, KubeconfigFile
from pilot.kube.client import ApiClient, Throttle
from pilot.kube.errors import ConfigurationError, KubeError, NotFound
from pilot.kube.informer import WatchOptions
from pilot.lib.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.mcp.stream import CannotConnectError
from pilot.mesh.tables.database import Mesh
from pilot.settings import Settings
from pilot.settings.kubernetes import KubernetesSettings


def find_credentials(settings: KubernetesSettings, has_folders: bool) -> Credentials | None:
    """Returns how the API server is reached; None where none is to be used."""
    path = settings.kubeconfig or ("" if has_folders else settings.kubeconfig_env)
    if path:
        return KubeconfigFile(path, settings.context)
    return InCluster() if settings.service_host else None


def mesh_file_paths(settings: Settings) -> tuple[str, str]:
    """Returns the files of the mesh config and of the networks; "" for one that is not there and whose place a ConfigMap takes."""
    used = find_credentials(settings.kubernetes, bool(settings.ingest.config_dirs)) is not None
    mesh, networks = settings.ingest.mesh_config, settings.ingest.networks_config
    return mesh if not used or os.path.exists(mesh) else "", networks if not used or os.path.exists(networks) else ""


class _Secret(msgspec.Struct):
    data: dict[str, bytes] = {}


class IngestTarget(NamedTuple):
    """Where what is read goes, and who counts. `read` has the kinds that are read, of whatever source."""

    mesh: Mesh
    read: Catalogue
    batch: Batch
    ledger: Ledger
    problems: ProblemStore
    metrics: Metrics


class Kubernetes:
    """The API servers of the own cluster and of others. `start` returns when all of the own one has been read, and of the others what could be
    read in time; `reviewers` asks them about tokens and rights.

    `rank` is that of its objects among sources, `aliases` are further names of clusters. `beside` runs for each other cluster while it is read.
    """

    beside: Callable[[str, ApiClient], Coroutine[Any, Any, None]] | None = None

    def __init__(
        self,
        credentials: Credentials,
        settings: Settings,
        target: IngestTarget,
        rank: int,
        aliases: Mapping[str, str],
        pace: WatchOptions | None = None,
    ) -> None:
        self._credentials, self._settings, self._target, self._rank = credentials, settings, target, rank
        self.problems = target.problems
        self.pace = pace or WatchOptions(streaming_lists=settings.kubernetes.watch_lists)
        self.counts, self._choose = target.metrics.kubernetes, random.Random()
        self.client = self._client(credentials)
        registry, revision = settings.mesh.registry, settings.ingest.revision
        self.source = self._source(self.client, registry.cluster_id)
        names = [
            name
            for name in (settings.kubernetes.shared_mesh_config, f"istio-{revision}" if revision else "istio")
            if name
        ]
        rows = [row for row, path in zip((MESH_ROW, NETWORKS_ROW), mesh_file_paths(settings), strict=True) if not path]
        common = (target.problems, self.pace, self._choose)
        self._mesh = MeshConfigMaps(self.client, registry.namespace, names, rows, target.batch, *common)
        options = Options(
            registry.cluster_id,
            registry.namespace,
            settings.kubernetes.remote_options,
            settings.kubernetes.remote_timeout.seconds,
            settings.kubernetes.kubeconfig_folder,
        )
        elsewhere = settings.kubernetes.external and settings.kubernetes.secrets_of_this_cluster
        self._secrets_client = self._client(InCluster()) if elsewhere else self.client
        self.remote = RemoteClusters(self._secrets_client, options, self._join, *common, target.metrics)
        self.reviewers = ClusterReviewers(self.client, own_names(registry.cluster_id, aliases), self.remote.clusters)

    def _client(self, credentials: Credentials) -> ApiClient:
        return ApiClient(credentials, Throttle(self._settings.kubernetes.qps, self._settings.kubernetes.burst))

    def _source(self, client: ApiClient, cluster: str) -> KubeSource:
        """Returns what reads a cluster."""
        settings, target = self._settings, self._target
        own = cluster == settings.mesh.registry.cluster_id
        origin = DocumentOrigin(cluster, own, settings.ingest.revision)
        pace = self.pace._replace(on_failure=functools.partial(target.metrics.kubernetes.sync_failed, cluster))
        left_out = set() if own else self._left_out()
        kinds = [kind for kind in target.read if kind.id not in left_out]
        namespace = settings.kubernetes.watched_namespace
        return KubeSource(
            client, target.batch, target.ledger, self._rank + (not own), origin, kinds, pace, self._choose, namespace
        )

    def _left_out(self) -> set[GroupKind]:
        """Returns the kinds that are not read of other clusters."""
        kubernetes = self._settings.kubernetes
        secrets = set() if kubernetes.remote_credentials else {GroupKind("", "Secret")}
        return secrets if kubernetes.remote_entries else secrets | {GroupKind(NETWORKING, "WorkloadEntry")}

    def _join(self, cluster: str, credentials: Credentials) -> RemoteCluster:
        client = self._client(credentials)
        beside = functools.partial(self.beside, cluster, client) if self.beside is not None else None
        return RemoteCluster(
            client, self._source(client, cluster), self.pace, self._choose, self._target.metrics.cluster_status, beside
        )

    async def read_secret(self, name: str) -> Mapping[str, bytes]:
        """Returns the data of a Secret in the namespace of the control plane, none where it is not there. CannotConnectError where that cannot be
        told."""
        try:
            found = await self.client.call(
                "GET", f"/api/v1/namespaces/{self._settings.mesh.registry.namespace}/secrets/{name}"
            )
        except NotFound:
            return {}
        except KubeError as error:
            raise CannotConnectError(f"Secret {name}: {error}") from error
        return msgspec.json.decode(found, type=_Secret).data

    def keep_root(self) -> SecretStore:
        """Returns where a self-signed root is kept."""
        names = (NAME, CACERTS) if self._settings.authority.self_signed_cacerts else (NAME,)
        return SecretStore(self.client, self._settings.mesh.registry.namespace, asyncio.get_running_loop(), names)

    async def start(self, reads_configuration: Callable[[], bool]) -> None:
        """Reads everything, and follows it from then on. StartError where the configuration of the access cannot be used.

        `reads_configuration` is called once the mesh config is there: False where only what runs in the own cluster is to be read.
        """
        try:
            await self._credentials.load()
            await self._mesh.start()
            await self._mesh.synced()
            await self.source.start(reads_configuration())
            await self.remote.start()
            await self.source.synced()
            await self.remote.synced()
        except ConfigurationError as error:
            raise StartError(str(error)) from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Follows nothing any more."""
        await self.remote.stop()
        await self.source.stop()
        await self._mesh.stop()
        await self.client.close()
        await self._secrets_client.close()
