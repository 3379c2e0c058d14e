"""API servers of the local and remote clusters, as sources of configuration, workloads and services."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.bootstrap.clusters.access_reviews import TokenReviewers
from pilot.bootstrap.security.port_auth import local_cluster_names
from pilot.bootstrap.security.secret_store import PLUGGED_IN_SECRET, SELF_SIGNED_SECRET, SecretError, SecretStore
from pilot.config.catalogue import Catalogue
from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.batch import Batch
from pilot.ingest.cluster.kube_mesh import MESH_ROW, NETWORKS_ROW, MeshConfigMaps
from pilot.ingest.cluster.kube_source import KubeSource
from pilot.ingest.cluster.remote_cluster import RemoteCluster
from pilot.ingest.cluster.remote_clusters import Options, RemoteClusters
from pilot.ingest.cluster.start_budget import StartBudget
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.files.chunk_parser import ChunkParser
from pilot.ingest.ledger import Ledger
from pilot.ingest.object_decoder import LONGEST_WAIT, PROGRAM, ObjectDecoder
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_access import Credentials, InCluster, KubeconfigFile
from pilot.kube.api_client import ApiClient, Throttle
from pilot.kube.api_errors import ConfigurationError, KubeError, NotFound
from pilot.kube.informer import WatchOptions
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.lib.workers.pool import WorkerPool
from pilot.mesh.tables.database import MESH_CONFIG, Mesh
from pilot.settings import Settings
from pilot.settings.kubernetes import KubernetesSettings
from pilot.settings.process import IngestSettings

RunRemote = Callable[[str, ApiClient], Coroutine[Any, Any, None]]
"""Runs the controllers of a remote cluster. The arguments are the name of the cluster and a client."""


def find_credentials(settings: KubernetesSettings, has_folders: bool) -> Credentials | None:
    """Return the credentials for the local cluster's API server, or None if the control plane uses no API server.

    In a Pod, a kubeconfig that is missing or empty is ignored, because charts mount the Secret of an external control
    plane whether it exists or not.
    """
    path = settings.kubeconfig or ("" if has_folders else settings.kubeconfig_env)
    if path and not (settings.service_host and _is_missing(path)):
        return KubeconfigFile(path, settings.context)
    return InCluster() if settings.service_host else None


def _is_missing(path: str) -> bool:
    """Return True if there is no file at a path, or an empty one."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return True


def mesh_config_name(revision: str) -> str:
    """Return the name of the ConfigMap with the mesh config of a revision."""
    return "istio" if revision in ("", "default") else f"istio-{revision}"


def mesh_file_paths(settings: Settings) -> tuple[str, str]:
    """Return the paths of the mesh config file and the mesh networks file.

    If the control plane uses an API server, the path of a missing default file is "", because a ConfigMap replaces the
    file.
    """
    has_api_server = find_credentials(settings.kubernetes, bool(settings.ingest.config_dirs)) is not None
    ingest, required = settings.ingest, required_mesh_files(settings)

    def path(name: str) -> str:
        return name if not has_api_server or name in required or os.path.exists(name) else ""

    return path(ingest.mesh_config), path(ingest.networks_config)


def required_mesh_files(settings: Settings) -> frozenset[str]:
    """Return the paths that flags set. These files must exist, unlike those at the default paths."""
    ingest, defaults = settings.ingest, IngestSettings()
    return frozenset({ingest.mesh_config, ingest.networks_config}) - {defaults.mesh_config, defaults.networks_config}


class _Secret(msgspec.Struct):
    data: dict[str, bytes] = {}


class IngestTarget(NamedTuple):
    """Destination of the objects that are read.

    `catalogue` contains the kinds to read, from any source. `parser` parses large files.
    """

    mesh: Mesh
    catalogue: Catalogue
    batch: Batch
    ledger: Ledger
    problems: ProblemStore
    metrics: Metrics
    parser: ChunkParser | None = None


class ApiServers:
    """API servers of the local and remote clusters.

    `rank` is the rank of their objects among all sources, and `aliases` maps aliases to cluster names. `run_remote`
    runs for each remote cluster while the cluster is read. `reviewers` review tokens. Requests that callers of the
    control plane cause use `caller_client`, whose limit is separate, so that they do not delay those of `client`.
    """

    def __init__(
        self,
        credentials: Credentials,
        settings: Settings,
        target: IngestTarget,
        rank: int,
        aliases: Mapping[str, str],
        run_remote: RunRemote | None = None,
        watch_options: WatchOptions | None = None,
    ) -> None:
        self._credentials, self._settings, self._target, self._rank = credentials, settings, target, rank
        self._run_remote = run_remote
        self.problems = target.problems
        self.watch_options = watch_options or WatchOptions(streaming_lists=settings.kubernetes.watch_lists)
        self.metrics, self._rng = target.metrics.kubernetes, random.Random()
        self._workers = WorkerPool(PROGRAM, longest_wait=LONGEST_WAIT)
        self._decoder, self._budget = ObjectDecoder(self._workers), StartBudget()
        self.client, self.caller_client = self._client(credentials), self._client(credentials)
        registry, revision = settings.mesh.registry, settings.ingest.revision
        self.source = self._source(self.client, registry.cluster_id)
        names = [name for name in (settings.kubernetes.shared_mesh_config, mesh_config_name(revision)) if name]
        rows = [row for row, path in zip((MESH_ROW, NETWORKS_ROW), mesh_file_paths(settings), strict=True) if not path]
        common = (target.problems, self.watch_options, self._rng)
        self._mesh = MeshConfigMaps(self.client, registry.namespace, names, rows, target.batch, *common)
        options = Options(
            registry.cluster_id,
            registry.namespace,
            settings.kubernetes.remote_options,
            settings.kubernetes.remote_timeout.seconds,
            settings.kubernetes.kubeconfig_folder,
        )
        uses_hosting_cluster = settings.kubernetes.external and settings.kubernetes.secrets_of_this_cluster
        self._secrets_client = self._client(InCluster()) if uses_hosting_cluster else self.client
        self.remote = RemoteClusters(self._secrets_client, options, self._join, *common, target.metrics)
        local_names = local_cluster_names(registry.cluster_id, aliases)
        on_rejected = functools.partial(target.metrics.caller_limit_exceeded, "token_reviews")
        self.reviewers = TokenReviewers(
            self.caller_client, local_names, self.remote.clusters, self._new_throttle, on_rejected
        )

    def _client(self, credentials: Credentials) -> ApiClient:
        return ApiClient(credentials, self._new_throttle())

    def _new_throttle(self) -> Throttle:
        return Throttle(self._settings.kubernetes.qps, self._settings.kubernetes.burst)

    def _source(self, client: ApiClient, cluster: str) -> KubeSource:
        """Return the source that reads a cluster."""
        settings, target = self._settings, self._target
        is_local = cluster == settings.mesh.registry.cluster_id
        origin = DocumentOrigin(cluster, is_local, settings.ingest.revision)
        options = self.watch_options._replace(
            on_failure=functools.partial(target.metrics.kubernetes.sync_failed, cluster)
        )
        excluded = set() if is_local else self._kinds_excluded_from_remote()
        kinds = [kind for kind in target.catalogue if kind.id not in excluded]
        namespace, rank = settings.kubernetes.watched_namespace, self._rank + (not is_local)
        return KubeSource(
            client,
            target.batch,
            target.ledger,
            rank,
            origin,
            kinds,
            options,
            self._rng,
            namespace,
            self._decoder,
            self._budget if is_local else None,
        )

    def _kinds_excluded_from_remote(self) -> set[GroupKind]:
        """Return the kinds that are not read from remote clusters."""
        kubernetes = self._settings.kubernetes
        secrets = set() if kubernetes.remote_credentials else {GroupKind("", "Secret")}
        return secrets if kubernetes.remote_entries else secrets | {GroupKind(NETWORKING, "WorkloadEntry")}

    def _join(self, cluster: str, credentials: Credentials) -> RemoteCluster:
        client = self._client(credentials)
        run = functools.partial(self._run_remote, cluster, client) if self._run_remote is not None else None
        source, on_status = self._source(client, cluster), self._target.metrics.cluster_status
        return RemoteCluster(client, source, self.watch_options, self._rng, on_status, run)

    async def read_secret(self, name: str) -> Mapping[str, bytes]:
        """Return the data of a Secret in the control plane's namespace, or {} if it does not exist.

        Raise SecretError if it cannot be read.
        """
        try:
            body = await self.client.call(
                "GET", f"/api/v1/namespaces/{self._settings.mesh.registry.namespace}/secrets/{name}"
            )
        except NotFound:
            return {}
        except KubeError as error:
            raise SecretError(f"Secret {name}: {error}") from error
        return msgspec.json.decode(body, type=_Secret).data

    def root_store(self) -> SecretStore:
        """Return the store of the self-signed root certificate."""
        has_cacerts = self._settings.authority.self_signed_cacerts
        names = (SELF_SIGNED_SECRET, PLUGGED_IN_SECRET) if has_cacerts else (SELF_SIGNED_SECRET,)
        return SecretStore(self.client, self._settings.mesh.registry.namespace, asyncio.get_running_loop(), names)

    async def start(self, reads_configuration: Callable[[], bool]) -> None:
        """Read all clusters, and keep watching them. Raise StartError if the credentials are unusable.

        The local cluster is read completely. Remote clusters are read as far as they respond in time.
        `reads_configuration` is called once the mesh config is known. If it returns False, only workloads and services
        are read from the local cluster.
        """
        try:
            await self._credentials.load()
            await self._mesh.start()
            await self._mesh.synced()
            mesh = self._target.batch.waiting(MESH_CONFIG, "mesh") or MeshConfig()
            self._budget.trusted = frozenset((mesh.root_namespace, self._settings.mesh.registry.namespace))
            await self.source.start(reads_configuration())
            await self.remote.start()
            await self.source.synced()
            await self.remote.synced()
        except ConfigurationError as error:
            raise StartError(str(error)) from error
        except BaseException:
            await self.stop()
            raise

    async def read_waiting(self) -> None:
        """Start to read the objects that have waited until the control plane serves proxies."""
        self.source.read_waiting()

    async def stop(self) -> None:
        """Stop watching."""
        await self.remote.stop()
        await self.source.stop()
        await self._mesh.stop()
        await self._workers.stop()
        await self.client.close()
        await self.caller_client.close()
        await self._secrets_client.close()
