"""Asks an API server whose a token is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilot.kube.client import ApiClient
from pilot.kube.errors import KubeError


class TokenRejected(KubeError):
    """The server does not accept a token."""


class UserInfo(msgspec.Struct, frozen=True):
    """Who brings a token."""

    username: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    error: str = ""
    audiences: tuple[str, ...] = ()
    user: UserInfo = UserInfo()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


async def review_token(client: ApiClient, token: str, audiences: Sequence[str]) -> UserInfo:
    """Returns whose a token is. TokenRefused where the server does not accept it for one of the audiences, KubeError where it cannot be asked."""
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    answer = await client.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=msgspec.json.encode(body))
    status = msgspec.json.decode(answer, type=_TokenReview).status
    if not status.authenticated:
        raise TokenRejected(status.error or "the token is not accepted")
    if audiences and not set(audiences) & set(
        status.audiences
    ):  # a server that does not know audiences accepts its own
        raise TokenRejected(
            f"the token is for {', '.join(status.audiences) or 'nobody'}, not for {', '.join(audiences)}"
        )
    return status.user
