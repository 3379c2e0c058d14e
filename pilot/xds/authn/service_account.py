"""Tokens of Kubernetes' service accounts, which somebody who knows them reviews: the API server, or a set of keys where there is none."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from pilot.lib.spiffe import identity
from pilot.xds.identity import Caller, IdentityError

GROUP = "system:serviceaccounts"
_PREFIX = ("system", "serviceaccount")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class Review(NamedTuple):
    """What a reviewer says of a token that it accepts: Kubernetes' UserInfo."""

    username: str
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = {}


Reviewer = Callable[[str, Sequence[str]], Awaitable[Review]]
"""Takes a token and the audiences of which it must name one. IdentityError where the token is not accepted, or nobody can be asked."""


class ServiceAccountTokens:
    """An authenticator of bearer tokens. `reviewers` has that of each cluster by the cluster's id, and under "" that of the own one;
    `trust_domain` returns the mesh's of now."""

    def __init__(
        self, reviewers: Mapping[str, Reviewer], audiences: Sequence[str], trust_domain: Callable[[], str]
    ) -> None:
        self._reviewers, self._audiences, self._trust_domain = reviewers, tuple(audiences), trust_domain

    async def identify(self, caller: Caller) -> Sequence[str]:
        """Returns the identity of the service account whose token the caller brings. IdentityError where it brings none that is accepted."""
        return (service_account_identity((await self.review(caller)).username, self._trust_domain()),)

    async def review(self, caller: Caller) -> Review:
        """Returns what the reviewer of the caller's cluster says of its token, which is a service account's; IdentityError likewise."""
        if not caller.token:
            raise IdentityError("the request has no bearer token")
        cluster = caller.header("clusterid")
        reviewer = self._reviewers.get(cluster)
        if reviewer is None:
            raise IdentityError(f"nobody reviews tokens of the cluster {cluster!r}")
        review = await reviewer(caller.token, self._audiences)
        if GROUP not in review.groups:
            raise IdentityError(f"{review.username!r} is no service account: it is not in the group {GROUP}")
        return review


def service_account_identity(username: str, trust_domain: str) -> str:
    """Returns the SPIFFE identity of system:serviceaccount:NAMESPACE:NAME. IdentityError for any other user, and for names that Kubernetes
    does not allow: a slash in one would make it another identity."""
    parts = username.split(":")
    if (
        len(parts) != 4
        or tuple(parts[:2]) != _PREFIX
        or not (_LABEL.fullmatch(parts[2]) and _SUBDOMAIN.fullmatch(parts[3]))
    ):
        raise IdentityError(f"{username!r} is no service account")
    return identity(trust_domain, parts[2], parts[3])
