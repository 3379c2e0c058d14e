"""Reviews tokens and permissions with the API server of the caller's cluster."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from pilot.bootstrap.clusters.token_reviewer import TokenReviewer
from pilot.ingest.cluster.remote_cluster import RemoteCluster
from pilot.kube.api_client import ApiClient, Throttle
from pilot.kube.reviews import can_list_secrets
from pilot.mesh.tables.database import AccountKey
from pilot.xds.authn.service_account import Reviewer


class TokenReviewers(Mapping[str, Reviewer]):
    """Token reviewers, keyed by the cluster name that a caller specifies.

    `local_names` are the names of the local cluster. `remote` always contains the current remote clusters.
    `new_throttle` returns the throttle for the reviews of one cluster. `on_rejected` is called when a caller is
    rejected because too many callers wait.
    """

    def __init__(
        self,
        local: ApiClient,
        local_names: Collection[str],
        remote: Mapping[str, RemoteCluster],
        new_throttle: Callable[[], Throttle],
        on_rejected: Callable[[], None],
    ) -> None:
        self._local, self._local_names, self._remote = local, frozenset(local_names), remote
        self._new_throttle, self._on_rejected = new_throttle, on_rejected
        self._reviewers: weakref.WeakKeyDictionary[ApiClient, TokenReviewer] = weakref.WeakKeyDictionary()

    def __getitem__(self, cluster: str) -> Reviewer:
        client = self._local if cluster in self._local_names else self._remote[cluster].client
        reviewer = self._reviewers.get(client)
        if reviewer is None:
            reviewer = self._reviewers[client] = TokenReviewer(
                client, self._new_throttle(), on_rejected=self._on_rejected
            )
        return reviewer

    def __iter__(self) -> Iterator[str]:
        return iter(self._local_names | self._remote.keys())

    def __len__(self) -> int:
        return len(self._local_names | self._remote.keys())


class SecretAccessReview:
    """Reviews whether a service account may list the Secrets in its namespace.

    The API server of the account's cluster decides. In a cluster that is read from files, every account may list them.
    In an unknown cluster, no account may. `remote` always contains the current remote clusters.
    """

    def __init__(
        self,
        client: ApiClient,
        local_cluster: str,
        file_clusters: Collection[str],
        remote: Mapping[str, RemoteCluster] = MappingProxyType({}),
    ) -> None:
        self._client, self._local_cluster, self._remote = client, local_cluster, remote
        self._file_clusters = frozenset(file_clusters) - {local_cluster}

    async def __call__(self, account: AccountKey) -> bool:
        """Return whether an account may list Secrets. Raise KubeError if the API server does not respond."""
        remote = self._remote.get(account.cluster)
        if remote is None and account.cluster != self._local_cluster:
            return account.cluster in self._file_clusters
        return await can_list_secrets(
            remote.client if remote is not None else self._client, account.namespace, account.name
        )
