"""Other clusters, from Secrets with their kubeconfigs, or from files: each joins, changes its credentials and leaves while the process runs.

A Secret with the label istio/multiCluster has a cluster for each of its keys. Of several Secrets with the same cluster the first has it,
until it is gone. A kubeconfig that cannot be used leaves a cluster as it was, with a problem that says why.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.ingest.kubeconfig_folder import KubeconfigFolder
from pilot.ingest.problems import ProblemStore
from pilot.ingest.remote_cluster import RemoteCluster
from pilot.ingest.remote_kubeconfig import read_kubeconfig
from pilot.kube.access import Credentials
from pilot.kube.client import ApiClient
from pilot.kube.errors import ConfigurationError
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.wire import ObjectChange
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks

LABEL = "istio/multiCluster=true"
_log = scope("secretcontroller")


class _Secret(msgspec.Struct):
    data: dict[str, bytes] | None = None


class Options(NamedTuple):
    """`own`: the cluster whose Secrets are read, which is no other one. `namespace`: where they are. `allowed`: see `read_kubeconfig`.
    `deadline`: seconds that the start waits for a cluster, 0 for as long as it takes. `folder`: where kubeconfigs are files instead."""

    own: str
    namespace: str
    allowed: tuple[str, ...] = ()
    deadline: float = 30.0
    folder: str = ""


Join = Callable[[str, Credentials], RemoteCluster]
"""Returns a cluster that is read with these credentials."""


class ClusterCounts(Protocol):
    """Is told of Secrets that come (add), change (update) and go (delete), and how many clusters there are."""

    def cluster_secret(self, event: str) -> None: ...
    def clusters(self, local: int, remote: int) -> None: ...


class RemoteClusters:
    """All other clusters. `clusters` has those that are followed, by their ids."""

    def __init__(
        self,
        client: ApiClient,
        options: Options,
        join: Join,
        problems: ProblemStore,
        pace: WatchOptions,
        choose: random.Random,
        counts: ClusterCounts,
    ) -> None:
        self.clusters: dict[str, RemoteCluster] = {}
        self._options, self._join, self._problems, self._counts = options, join, problems, counts
        self._secrets: dict[str, Mapping[str, bytes]] = {}
        self._holders: dict[str, str] = {}
        self._reported: set[str] = set()
        path = f"/api/v1/namespaces/{options.namespace}/secrets"
        self._folder = KubeconfigFolder(options.folder, self._receive_files) if options.folder else None
        self._follower = Informer(client, WatchedCollection(path, labels=LABEL), self._receive, pace, choose)
        self._synced = self._folder.synced if self._folder is not None else self._follower.synced
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to follow the Secrets or files, and the clusters that they name."""
        if self._folder is not None:
            await self._folder.start()
            return
        self._task = asyncio.create_task(self._follower.run(), name="follow the Secrets of clusters")

    async def synced(self) -> None:
        """Returns when every cluster that there was at the start has been read, or its time is over."""
        await self._synced.wait()
        await asyncio.gather(*(cluster.wait(self._options.deadline) for cluster in self.clusters.values()))

    async def stop(self) -> None:
        """Follows nothing any more; what was read stays."""
        await cancel_tasks(self._task)
        if self._folder is not None:
            await self._folder.stop()
        for cluster in self.clusters.values():
            await cluster.stop()

    async def _receive_files(self, files: Mapping[str, Mapping[str, bytes]]) -> None:
        self._secrets = dict(files)
        await self._settle()

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
        await self._settle()

    async def _settle(self) -> None:
        """Has the clusters that the Secrets name joined, and no others."""
        wanted = self._wanted()
        for name in [name for name in self.clusters if name not in wanted]:
            _log.info("cluster %s leaves", name)
            cluster = self.clusters.pop(name)
            await cluster.stop()
            await cluster.forget()
        found: dict[str, list[Problem]] = {secret: [] for secret in self._secrets}
        for name, (secret, data) in wanted.items():
            try:
                await self._use(name, data)
            except ConfigurationError as error:
                found[secret].append(self._problem(secret, name, str(error)))
        for secret in self._secrets.keys() | self._reported:
            self._problems.replace(("clusters", secret), found.get(secret, ()))
        self._counts.clusters(1, len(self.clusters))
        self._reported = {secret for secret, problems in found.items() if problems}

    async def _use(self, name: str, data: bytes) -> None:
        """Has a cluster followed by a kubeconfig. ConfigurationError where that cannot be used."""
        cluster = self.clusters.get(name)
        if cluster is not None and cluster.kubeconfig == data:
            return
        credentials = read_kubeconfig(data, self._options.allowed)
        await credentials.load()
        if cluster is None:
            _log.info("cluster %s joins", name)
            cluster = self.clusters[name] = self._join(name, credentials)
            await cluster.start()
        else:
            _log.info("cluster %s gets other credentials", name)
            cluster.change(credentials)
        cluster.kubeconfig = data

    def _wanted(self) -> dict[str, tuple[str, bytes]]:
        """Returns the Secret and the kubeconfig of each cluster: a cluster stays with the Secret that it has."""
        wanted: dict[str, tuple[str, bytes]] = {}
        for secret in sorted(self._secrets, key=lambda secret: (secret not in self._holders.values(), secret)):
            for name, data in self._secrets[secret].items():
                holder = self._holders.get(name)
                kept = holder in self._secrets and name in self._secrets[holder] if holder is not None else False
                if name != self._options.own and name not in wanted and (not kept or holder == secret):
                    wanted[name] = secret, data
        self._holders = {name: secret for name, (secret, _) in wanted.items()}
        return wanted

    def _problem(self, secret: str, name: str, message: str) -> Problem:
        said = f"cluster {name}: {message}"
        if self._folder is not None:
            return Problem(code="bad-kubeconfig", file=f"{self._options.folder}/{secret}", message=said)
        subject = ObjectRef(GroupKind("", "Secret"), self._options.namespace, secret)
        return Problem(code="bad-kubeconfig", object=subject, path=f"data[{name}]", message=said)
