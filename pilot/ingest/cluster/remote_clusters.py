"""Adds, updates and removes remote clusters according to the kubeconfigs in Secrets or files.

Each data key of a Secret with the label istio/multiCluster is the name of a cluster. If several Secrets contain the
same cluster, the first one wins until it is deleted. If a kubeconfig is invalid, the error is reported and the cluster
does not change.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.ingest.cluster.kubeconfig_folder import KubeconfigFolder
from pilot.ingest.cluster.remote_cluster import RemoteCluster
from pilot.ingest.cluster.remote_kubeconfig import read_kubeconfig
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_access import Credentials
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ConfigurationError
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

LABEL = "istio/multiCluster=true"
_log = scope("secretcontroller")


class _Secret(msgspec.Struct):
    data: dict[str, bytes] | None = None


class Options(NamedTuple):
    """Options for remote clusters.

    `own` is the ID of the local cluster, and `namespace` is the namespace of the Secrets. For `allowed`, see
    `read_kubeconfig`. Startup waits at most `deadline` seconds for each cluster; 0 means no limit. If `folder` is set,
    kubeconfigs are read from the files in this folder.
    """

    own: str
    namespace: str
    allowed: tuple[str, ...] = ()
    deadline: float = 30.0
    folder: str = ""


Join = Callable[[str, Credentials], RemoteCluster]
"""Function that creates a remote cluster from its ID and credentials."""


class ClusterCounts(Protocol):
    """Metrics that count clusters, and the events of Secrets (add, update, delete)."""

    def cluster_secret(self, event: str) -> None: ...
    def clusters(self, local: int, remote: int) -> None: ...


class RemoteClusters:
    """All remote clusters. `clusters` contains those that are in use, keyed by ID."""

    def __init__(
        self,
        client: ApiClient,
        options: Options,
        join: Join,
        problems: ProblemStore,
        pace: WatchOptions,
        rng: random.Random,
        counts: ClusterCounts,
    ) -> None:
        self.clusters: dict[str, RemoteCluster] = {}
        self._options, self._join, self._problems, self._counts = options, join, problems, counts
        self._secrets: dict[str, Mapping[str, bytes]] = {}
        self._holders: dict[str, str] = {}
        self._reported: set[str] = set()
        path = f"/api/v1/namespaces/{options.namespace}/secrets"
        self._folder = KubeconfigFolder(options.folder, self._receive_files) if options.folder else None
        self._informer = Informer(client, WatchedCollection(path, labels=LABEL), self._receive, pace, rng)
        self._synced = self._folder.synced if self._folder is not None else self._informer.synced
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start watching the Secrets or files, and the clusters in them."""
        if self._folder is not None:
            await self._folder.start()
            return
        self._task = asyncio.create_task(self._informer.run(), name="watch the Secrets of clusters")

    async def synced(self) -> None:
        """Wait until each initial cluster has been read, or its deadline has passed."""
        await self._synced.wait()
        await asyncio.gather(*(cluster.wait(self._options.deadline) for cluster in self.clusters.values()))

    async def stop(self) -> None:
        """Stop watching. The objects remain in the tables."""
        await cancel_tasks(self._task)
        if self._folder is not None:
            await self._folder.stop()
        for cluster in self.clusters.values():
            await cluster.stop()

    async def _receive_files(self, files: Mapping[str, Mapping[str, bytes]]) -> None:
        self._secrets = dict(files)
        await self._reconcile()

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            secret = change.name.name
            self._counts.cluster_secret(
                "delete" if change.raw is None else "update" if secret in self._secrets else "add"
            )
            if change.raw is None:
                self._secrets.pop(secret, None)
            else:
                self._secrets[secret] = msgspec.json.decode(change.raw, type=_Secret).data or {}
        await self._reconcile()

    async def _reconcile(self) -> None:
        """Add the clusters that the Secrets contain, and remove all others."""
        desired = self._desired_clusters()
        for name in [name for name in self.clusters if name not in desired]:
            _log.info("removing cluster %s", name)
            cluster = self.clusters.pop(name)
            await cluster.stop()
            await cluster.forget()
        problems_by_secret: dict[str, list[Problem]] = {secret: [] for secret in self._secrets}
        for name, (secret, data) in desired.items():
            try:
                await self._use(name, data)
            except ConfigurationError as error:
                problems_by_secret[secret].append(self._problem(secret, name, str(error)))
        for secret in self._secrets.keys() | self._reported:
            self._problems.replace(("clusters", secret), problems_by_secret.get(secret, ()))
        self._counts.clusters(1, len(self.clusters))
        self._reported = {secret for secret, problems in problems_by_secret.items() if problems}

    async def _use(self, name: str, data: bytes) -> None:
        """Use a kubeconfig to read a cluster. Raise ConfigurationError if the kubeconfig is invalid."""
        cluster = self.clusters.get(name)
        if cluster is not None and cluster.kubeconfig == data:
            return
        credentials = read_kubeconfig(data, self._options.allowed)
        await credentials.load()
        if cluster is None:
            _log.info("adding cluster %s", name)
            cluster = self.clusters[name] = self._join(name, credentials)
            await cluster.start()
        else:
            _log.info("updating the credentials of cluster %s", name)
            cluster.change(credentials)
        cluster.kubeconfig = data

    def _desired_clusters(self) -> dict[str, tuple[str, bytes]]:
        """Return a mapping from each cluster to its Secret and kubeconfig. A cluster keeps its current Secret."""
        desired: dict[str, tuple[str, bytes]] = {}
        for secret in sorted(self._secrets, key=lambda secret: (secret not in self._holders.values(), secret)):
            for name, data in self._secrets[secret].items():
                holder = self._holders.get(name)
                has_holder = holder in self._secrets and name in self._secrets[holder] if holder is not None else False
                if name != self._options.own and name not in desired and (not has_holder or holder == secret):
                    desired[name] = secret, data
        self._holders = {name: secret for name, (secret, _) in desired.items()}
        return desired

    def _problem(self, secret: str, name: str, message: str) -> Problem:
        text = f"cluster {name}: {message}"
        if self._folder is not None:
            return Problem(code="bad-kubeconfig", file=f"{self._options.folder}/{secret}", message=text)
        subject = ObjectRef(GroupKind("", "Secret"), self._options.namespace, secret)
        return Problem(code="bad-kubeconfig", object=subject, path=f"data[{name}]", message=text)
