"""Who decides which service accounts may read the Secrets of their namespace: the API server, where there is one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from pilot.ingest.remote_cluster import RemoteCluster
from pilot.kube.client import ApiClient
from pilot.kube.reviews import can_list_secrets
from pilot.mesh.tables.database import AccountKey


class SecretReview:
    """Asks the API server of the account's cluster. In the files of a cluster nothing says which account of a namespace may read its Secrets, so
    each may; of a cluster that is neither, nobody can tell, so none may. `remote` are the other clusters that have API servers now."""

    def __init__(
        self,
        client: ApiClient,
        own: str,
        folders: Collection[str],
        remote: Mapping[str, RemoteCluster] = MappingProxyType({}),
    ) -> None:
        self._client, self._own, self._of_files, self._remote = client, own, frozenset(folders) - {own}, remote

    async def __call__(self, account: AccountKey) -> bool:
        """Returns whether an account may list the Secrets of its namespace. KubeError where the API server does not answer."""
        remote = self._remote.get(account.cluster)
        if remote is None and account.cluster != self._own:
            return account.cluster in self._of_files
        return await can_list_secrets(
            remote.client if remote is not None else self._client, account.namespace, account.name
        )
