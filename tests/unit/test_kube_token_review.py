"""Whose a token is, asked of an API server."""
from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from pilot.app.reviewers import ClusterReviewers
from pilot.serve.authn.service_account import ServiceAccountTokens
from pilot.serve.identity import Caller, IdentityError
from tests.support.apiserver.server import ApiServer
from tests.support.kube import client_of


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def reviewers(server: ApiServer) -> AsyncIterator[ClusterReviewers]:
    client = client_of(server)
    yield ClusterReviewers(client, ("", "Kubernetes"), {})
    await client.close()


async def identify(reviewers: ClusterReviewers, token: str, cluster: str = "") -> Sequence[str]:
    tokens = ServiceAccountTokens(reviewers, ("istio-ca",), lambda: "cluster.local")
    return await tokens.identify(Caller("1.1.1.1:1", {"authorization": f"Bearer {token}", "clusterid": cluster}))


async def test_a_token_that_the_server_accepts_is_its_service_account(server: ApiServer, reviewers: ClusterReviewers) -> None:
    server.tokens.service_account("shop", "web", "good", pod="web-0")
    assert await identify(reviewers, "good", "Kubernetes") == ("spiffe://cluster.local/ns/shop/sa/web",)
    user = await reviewers[""]("good", ("istio-ca",))
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("web-0",)


@pytest.mark.parametrize(("token", "cluster"), [("unknown", ""), ("expired", ""), ("other", ""), ("admin-token", ""), ("good", "west")])
async def test_other_tokens_are_refused(server: ApiServer, reviewers: ClusterReviewers, token: str, cluster: str) -> None:
    server.tokens.service_account("shop", "web", "good")
    server.tokens.service_account("shop", "web", "other", audience="somebody")
    server.tokens.known["expired"] = server.tokens.service_account("shop", "web", "expired")._replace(expired=True)
    with pytest.raises(IdentityError):
        await identify(reviewers, token, cluster)


async def test_without_an_answer_nobody_is_let_in(server: ApiServer, reviewers: ClusterReviewers) -> None:
    server.tokens.service_account("shop", "web", "good")
    server.faults.refuse(500)
    with pytest.raises(IdentityError, match="500"):
        await identify(reviewers, "good")
    await server.stop()
    with pytest.raises(IdentityError):
        await identify(reviewers, "good")
