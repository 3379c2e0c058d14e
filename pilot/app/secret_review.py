"""Who decides which service accounts may read the Secrets of their namespace: the API server, where there is one."""
from __future__ import annotations

from collections.abc import Collection

from pilot.kube.client import Client
from pilot.kube.secret_review import lists_secrets
from pilot.model.inputs import AccountKey


class SecretReview:
    """Asks the API server of the own cluster. In the files of a cluster nothing says which account of a namespace may read its Secrets, so each
    may; of a cluster that is neither, nobody can tell, so none may."""

    def __init__(self, client: Client, own: str, folders: Collection[str]) -> None:
        self._client, self._own, self._of_files = client, own, frozenset(folders) - {own}

    async def __call__(self, account: AccountKey) -> bool:
        """Returns whether an account may list the Secrets of its namespace. KubeError where the API server does not answer."""
        if account.cluster != self._own:
            return account.cluster in self._of_files
        return await lists_secrets(self._client, account.namespace, account.name)
