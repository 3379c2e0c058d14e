"""Whose tokens are is asked of the API server of the cluster that the caller names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pilot.ingest.remote_cluster import RemoteCluster
from pilot.kube.client import ApiClient
from pilot.kube.errors import KubeError
from pilot.kube.reviews import review_token
from pilot.xds.authn.service_account import Review, Reviewer
from pilot.xds.identity import IdentityError


class ClusterReviewers(Mapping[str, Reviewer]):
    """The reviewers of tokens, by the names of clusters as callers know them: `names` are those of the own one, `remote` come and go."""

    def __init__(self, own: ApiClient, names: Collection[str], remote: Mapping[str, RemoteCluster]) -> None:
        self._own, self._names, self._remote = own, frozenset(names), remote

    def __getitem__(self, cluster: str) -> Reviewer:
        return reviewer(self._own if cluster in self._names else self._remote[cluster].client)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names | self._remote.keys())

    def __len__(self) -> int:
        return len(self._names | self._remote.keys())


def reviewer(client: ApiClient) -> Reviewer:
    """Returns the reviewer of tokens that an API server is."""

    async def review(token: str, audiences: Collection[str]) -> Review:
        try:
            user = await review_token(client, token, list(audiences))
        except KubeError as error:
            raise IdentityError(str(error)) from error
        return Review(user.username, user.groups, user.extra)

    return review
