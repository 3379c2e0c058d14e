"""Token and access reviews at an API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from pilot.bootstrap.clusters.access_reviews import TokenReviewers
from pilot.kube.api_client import Throttle
from pilot.kube.api_errors import Unreachable
from pilot.kube.reviews import TokenRejected, UserInfo, can_list_secrets, review_token
from pilot.xds.authn.identity import Caller, IdentityError
from pilot.xds.authn.service_account import ServiceAccountTokens
from testing.apiserver.server import ApiServer
from testing.apiserver.tokens import ADMIN
from testing.kube.kube_access import client_of
from testing.security.tokens import token

GOOD, UNKNOWN, REVOKED, FOREIGN = (token(jti=name) for name in ("good", "unknown", "revoked", "foreign"))


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


@pytest.fixture
async def reviewers(server: ApiServer) -> AsyncIterator[TokenReviewers]:
    client = client_of(server)
    yield TokenReviewers(client, ("", "Kubernetes"), {}, lambda: Throttle(0, 1), lambda: None)
    await client.close()


async def identify(reviewers: TokenReviewers, bearer: str, cluster: str = "") -> Sequence[str]:
    tokens = ServiceAccountTokens(reviewers, ("istio-ca",), lambda: "cluster.local")
    return await tokens.identify(Caller("1.1.1.1:1", {"authorization": f"Bearer {bearer}", "clusterid": cluster}))


async def test_accepted_token_identifies_its_service_account(server: ApiServer, reviewers: TokenReviewers) -> None:
    server.tokens.service_account("shop", "web", GOOD, pod="web-0")
    assert await identify(reviewers, GOOD, "Kubernetes") == ("spiffe://cluster.local/ns/shop/sa/web",)
    user = await reviewers[""](GOOD, ("istio-ca",), "1.1.1.1")
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("web-0",)


@pytest.mark.parametrize(
    ("bearer", "cluster"), [(UNKNOWN, ""), (REVOKED, ""), (FOREIGN, ""), (ADMIN, ""), (GOOD, "west")]
)
async def test_invalid_token_is_rejected(
    server: ApiServer, reviewers: TokenReviewers, bearer: str, cluster: str
) -> None:
    server.tokens.service_account("shop", "web", GOOD)
    server.tokens.service_account("shop", "web", FOREIGN, audience="somebody")
    server.tokens.by_value[REVOKED] = server.tokens.service_account("shop", "web", REVOKED)._replace(expired=True)
    with pytest.raises(IdentityError):
        await identify(reviewers, bearer, cluster)


async def test_failed_review_rejects_the_token(server: ApiServer, reviewers: TokenReviewers) -> None:
    server.tokens.service_account("shop", "web", GOOD)
    server.faults.refuse(500)
    with pytest.raises(IdentityError, match="500"):
        await identify(reviewers, GOOD)
    await server.stop()
    with pytest.raises(IdentityError):
        await identify(reviewers, GOOD)


class ScriptedClient:
    """A client with one scripted answer, which records its requests."""

    def __init__(self, answer: Any) -> None:
        self._answer, self.requests = answer, list[tuple[str, str, Any]]()

    async def call(self, method: str, path: str, body: bytes, throttle: Throttle | None = None) -> bytes:
        self.requests.append((method, path, json.loads(body)))
        return json.dumps(self._answer).encode()


@pytest.mark.parametrize(
    ("audiences", "status", "reason"),
    [
        (("a", "b"), {"authenticated": True, "audiences": ["b", "c"]}, None),
        ((), {"authenticated": True}, None),
        ((), {"authenticated": True, "audiences": ["c"]}, None),
        (("a",), {}, "the token is not accepted"),
        (("a",), {"audiences": ["a"], "error": "it has expired"}, "it has expired"),
        (("a", "b"), {"authenticated": True}, "the audience of the token is empty, not a or b"),
        (("a",), {"authenticated": True, "audiences": ["c", "d"]}, "the audience of the token is c, d, not a"),
    ],
)
async def test_review_token(audiences: Sequence[str], status: Any, reason: str | None) -> None:
    client = ScriptedClient({"status": {**status, "user": {"username": "me", "groups": ["g"], "extra": {"k": ["v"]}}}})
    results = await asyncio.gather(review_token(client, "secret", audiences), return_exceptions=True)  # type: ignore[arg-type]
    assert [repr(result) for result in results] == [
        repr(UserInfo("me", ("g",), {"k": ("v",)}) if reason is None else TokenRejected(reason))
    ]
    spec = {"token": "secret", **({"audiences": [*audiences]} if audiences else {})}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    assert client.requests == [("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [({}, False), ({"allowed": True}, True), ({"allowed": True, "denied": True}, False), ({"denied": True}, False)],
)
async def test_can_list_secrets(status: Any, expected: bool) -> None:
    client = ScriptedClient({"status": status})
    assert await can_list_secrets(client, "shop", "edge") is expected  # type: ignore[arg-type]
    spec = {
        "user": "system:serviceaccount:shop:edge",
        "resourceAttributes": {"namespace": "shop", "verb": "list", "resource": "secrets"},
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}
    assert client.requests == [("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)]


async def test_review_without_a_status_is_rejected() -> None:
    with pytest.raises(TokenRejected, match="the token is not accepted"):
        await review_token(ScriptedClient({}), "secret", ())  # type: ignore[arg-type]
    with pytest.raises(Unreachable, match="tokenreviews: invalid response: "):
        await review_token(ScriptedClient([]), "secret", ())  # type: ignore[arg-type]
    with pytest.raises(Unreachable, match="subjectaccessreviews: invalid response: "):
        await can_list_secrets(ScriptedClient({}), "shop", "edge")  # type: ignore[arg-type]
