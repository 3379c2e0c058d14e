"""Authentication by Kubernetes service account tokens, which are reviewed by an API server or with a set of keys."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from pilot.lib.spiffe import identity
from pilot.xds.authn.identity import Caller, IdentityError, NoCredentials

GROUP = "system:serviceaccounts"
_PREFIX = ("system", "serviceaccount")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class Review(NamedTuple):
    """The user whom an accepted token authenticates, with the fields of Kubernetes' UserInfo."""

    username: str
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = {}


Reviewer = Callable[[str, Sequence[str], str], Awaitable[Review]]
"""Reviews a token, which must be valid for one of the audiences. The third argument is the host of the caller.

Raises IdentityError if the token is rejected or the token review fails.
"""


class ServiceAccountTokens:
    """Authenticator for bearer tokens.

    `reviewers` has a reviewer for each cluster, keyed by name. The key of the local cluster is "". `trust_domain`
    returns the mesh's current trust domain.
    """

    def __init__(
        self, reviewers: Mapping[str, Reviewer], audiences: Sequence[str], trust_domain: Callable[[], str]
    ) -> None:
        self._reviewers, self._audiences, self._trust_domain = reviewers, tuple(audiences), trust_domain

    async def identify(self, caller: Caller) -> Sequence[str]:
        """Return the identity of the service account in the caller's token.

        Raise IdentityError if there is no valid token.
        """
        return (service_account_identity((await self.review(caller)).username, self._trust_domain()),)

    async def review(self, caller: Caller) -> Review:
        """Return the result of the token review in the caller's cluster. Raise IdentityError if there is no valid
        token."""
        if not caller.token:
            raise NoCredentials("the request has no bearer token")
        cluster = caller.header("clusterid")
        reviewer = self._reviewers.get(cluster)
        if reviewer is None:
            raise IdentityError(f"there is no token reviewer for cluster {cluster!r}")
        review = await reviewer(caller.token, self._audiences, caller.host)
        if GROUP not in review.groups:
            raise IdentityError(f"{review.username!r} is not a service account: it is not in the group {GROUP}")
        return review


def service_account_identity(username: str, trust_domain: str) -> str:
    """Return the SPIFFE identity of the user system:serviceaccount:NAMESPACE:NAME.

    Raise IdentityError for any other user. Names that Kubernetes does not allow are rejected too, because a slash in a
    name would change the identity.
    """
    parts = username.split(":")
    if (
        len(parts) != 4
        or tuple(parts[:2]) != _PREFIX
        or not (_LABEL.fullmatch(parts[2]) and _SUBDOMAIN.fullmatch(parts[3]))
    ):
        raise IdentityError(f"{username!r} is not a service account")
    return identity(trust_domain, parts[2], parts[3])
