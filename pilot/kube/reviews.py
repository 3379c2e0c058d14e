"""Token reviews and access reviews by an API server. They return the user of a token, and the permissions of a service
account.

https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/
https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/subject-access-review-v1/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilot.kube.api_client import ApiClient, Throttle
from pilot.kube.api_errors import KubeError, Unreachable

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class TokenRejected(KubeError):
    """The server does not accept the token under review."""


class UserInfo(msgspec.Struct, frozen=True):
    """The user whom a token authenticates."""

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


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus


async def review_token(
    client: ApiClient, token: str, audiences: Sequence[str], throttle: Throttle | None = None
) -> UserInfo:
    """Return the user of a token. `throttle` replaces the throttle of the client.

    Raise TokenRejected if the server does not accept the token for any of the audiences. Raise another KubeError if the
    review fails.
    """
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    answer = await client.call("POST", TOKEN_REVIEWS, body=msgspec.json.encode(review), throttle=throttle)
    try:
        status = msgspec.json.decode(answer, type=_TokenReview).status
    except msgspec.MsgspecError as error:
        raise Unreachable(f"{TOKEN_REVIEWS}: invalid response: {error}") from error
    if not status.authenticated:
        raise TokenRejected(status.error or "the token is not accepted")
    # A server that does not support audiences accepts tokens for its own.
    if audiences and not set(audiences) & set(status.audiences):
        raise TokenRejected(
            f"the audience of the token is {', '.join(status.audiences) or 'empty'}, not {' or '.join(audiences)}"
        )
    return status.user


async def can_list_secrets(client: ApiClient, namespace: str, account: str) -> bool:
    """Return whether a service account may list the Secrets in its namespace. Raise KubeError if the review fails."""
    attributes = {"namespace": namespace, "verb": "list", "resource": "secrets"}
    spec = {"user": f"system:serviceaccount:{namespace}:{account}", "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}
    answer = await client.call("POST", SUBJECT_ACCESS_REVIEWS, body=msgspec.json.encode(review))
    try:
        status = msgspec.json.decode(answer, type=_AccessReview).status
    except msgspec.MsgspecError as error:
        raise Unreachable(f"{SUBJECT_ACCESS_REVIEWS}: invalid response: {error}") from error
    return status.allowed and not status.denied
