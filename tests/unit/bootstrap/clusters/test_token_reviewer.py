"""Token reviews by an API server: which tokens reach it, and in which order."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from pilot.bootstrap.clusters import token_reviewer as reviewer_module
from pilot.bootstrap.clusters.token_reviewer import TokenReviewer
from pilot.kube.api_client import ApiClient, Throttle
from pilot.kube.leader_lock import LEASE, Lock
from pilot.xds.authn.identity import Authenticator, Authenticators, Caller, IdentityError, TooManyCallers
from pilot.xds.authn.service_account import Review, ServiceAccountTokens
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import StaticAccess
from testing.security.tokens import base64url, claims

HEADER = base64url(b'{"alg":"RS256"}')
AUDIENCES = ("istio-ca",)
GROUP = "system:serviceaccounts"


def forge(account: str = "web", **more: Any) -> str:
    """Return a token with an invalid signature. The server of these tests accepts those of the account `web`."""
    return f"{HEADER}.{base64url(json.dumps(claims(account=account, **more)).encode())}.AAAA"


class Server:
    """An API server that reviews tokens as soon as it is `open`. `reviewed` contains their accounts."""

    def __init__(self) -> None:
        self.open, self.reviewed, self.is_down = asyncio.Event(), list[str](), False
        self.open.set()
        self.now = 1000.0
        self.rejections = list[str]()
        self.reviewer = TokenReviewer(
            self,  # type: ignore[arg-type]
            Throttle(0, 1),
            lambda: self.now,
            lambda: self.rejections.append("rejected"),
        )

    async def call(self, _: str, __: str, body: bytes, throttle: Throttle) -> bytes:
        segment = json.loads(body)["spec"]["token"].split(".")[1]
        subject = json.loads(base64.urlsafe_b64decode(segment + "=="))["sub"]
        self.reviewed.append(subject.rpartition(":")[2])
        await self.open.wait()
        user = {"username": subject, "groups": [GROUP]}
        accepted = {"authenticated": True, "audiences": AUDIENCES, "user": user}
        return json.dumps({"status": accepted if subject.endswith(":web") else {"error": "unknown\nkey"}}).encode()

    async def review(self, token: str, host: str = "10.0.0.1") -> Review:
        return await self.reviewer(token, AUDIENCES, host)


@pytest.fixture
def server() -> Server:
    return Server()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "token", ["junk", "a.b.c", forge(exp=900), forge(aud=["another"]), "x" * 100_000, f"{HEADER}.e30.x" * 2000]
)
async def test_junk_tokens_do_not_reach_the_api_server(server: Server, token: str) -> None:
    with pytest.raises(IdentityError):
        await server.review(token)
    assert server.reviewed == []


async def test_repeated_junk_token_is_reviewed_once_in_5_seconds(server: Server) -> None:
    token = forge("nobody")
    for _ in range(1000):
        with pytest.raises(IdentityError, match=r"^unknown\\nkey$"):
            await server.review(token)
    assert server.reviewed == ["nobody"]
    server.now += 5
    with pytest.raises(IdentityError):
        await server.review(token)
    assert server.reviewed == ["nobody"] * 2


async def test_valid_token_is_reviewed_once_in_10_seconds(server: Server) -> None:
    server.open.clear()
    token, short = forge(exp=5000), forge(exp=1003)
    calls = [asyncio.create_task(server.review(token)) for _ in range(1000)]
    await until(lambda: len(server.reviewed) == reviewer_module.CONCURRENT_REVIEWS)
    server.open.set()
    user = Review("system:serviceaccount:shop:web", (GROUP,))
    assert await asyncio.gather(*calls, server.review(token)) == [user] * 1001
    assert len(server.reviewed) == reviewer_module.CONCURRENT_REVIEWS
    server.now += 9.9
    await server.review(token)
    assert len(server.reviewed) == reviewer_module.CONCURRENT_REVIEWS
    server.now += 0.2
    await server.review(token)
    assert len(server.reviewed) == reviewer_module.CONCURRENT_REVIEWS + 1
    server.now = 1000.0
    await server.review(short)
    server.now = 1003.0  # an expired token is not accepted because of an earlier review
    await server.review(short)
    assert len(server.reviewed) == reviewer_module.CONCURRENT_REVIEWS + 3


async def test_result_for_other_audiences_is_not_reused(server: Server) -> None:
    await server.review(forge(aud=["istio-ca", "two"]))
    await server.reviewer(forge(aud=["istio-ca", "two"]), ("istio-ca", "two"), "10.0.0.1")
    assert len(server.reviewed) == 2


async def test_flood_of_tokens_from_one_address_delays_another_by_one_review(server: Server) -> None:
    server.open.clear()
    flood = [asyncio.create_task(server.review(forge("junk", jti=n), "10.6.6.6")) for n in range(1500)]
    await until(lambda: len(server.reviewed) == reviewer_module.CONCURRENT_REVIEWS)
    honest = asyncio.create_task(server.review(forge()))
    await asyncio.sleep(0)
    server.open.set()
    await honest
    assert server.reviewed.index("web") <= reviewer_module.CONCURRENT_REVIEWS + 1
    assert {str(error) for error in await asyncio.gather(*flood, return_exceptions=True)} == {r"unknown\nkey"}


async def test_number_of_waiting_callers_is_limited_at_the_expense_of_the_flood(server: Server) -> None:
    server.open.clear()
    honest = [asyncio.create_task(server.review(forge(jti=n), f"10.0.0.{n}")) for n in range(100)]
    flood = [asyncio.create_task(server.review(forge("junk", jti=n), "10.6.6.6")) for n in range(5000)]
    rejected = 5000 - reviewer_module.MAX_WAITING
    await until(lambda: sum(task.done() for task in flood) >= rejected)
    server.open.set()
    assert len(await asyncio.gather(*honest)) == 100
    errors = [type(error) for error in await asyncio.gather(*flood, return_exceptions=True)]
    assert errors.count(TooManyCallers) in range(rejected, rejected + 101)
    assert errors.count(TooManyCallers) == len(server.rejections)


async def test_too_many_callers_is_the_result_of_a_chain(server: Server) -> None:
    async def refuse(_: Caller) -> tuple[str, ...]:
        raise TooManyCallers("wait")

    async def reject(_: Caller) -> tuple[str, ...]:
        raise IdentityError("no")

    chain = Authenticators((Authenticator("a", refuse), Authenticator("b", reject)))
    with pytest.raises(TooManyCallers, match=r"^a: wait; b: no$"):
        await chain(Caller("10.0.0.1:1"))


async def test_slow_review_ends_after_10_seconds(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewer_module, "REVIEW_TIMEOUT", 0.01)
    server.open.clear()
    with pytest.raises(IdentityError, match="the API server did not review the token within 0 s"):
        await server.review(forge())


async def test_flood_of_junk_tokens_does_not_delay_the_renewal_of_a_lease() -> None:
    server = ApiServer()
    await server.start()
    client = ApiClient(StaticAccess(server), Throttle(0.001, 1))  # one request in 1,000 s
    reviewer = TokenReviewer(client, Throttle(0.001, 1))
    tokens = ServiceAccountTokens({"": reviewer}, AUDIENCES, lambda: "cluster.local")
    callers = [Caller("10.6.6.6:1", {"authorization": f"Bearer {forge(jti=n)}"}) for n in range(500)]
    flood = [asyncio.create_task(tokens.identify(caller)) for caller in callers]
    await asyncio.wait(flood, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    async with asyncio.timeout(30):
        assert await client.call("GET", "/version")  # reviews have used nothing of the client's own limit
        for _ in range(100):
            assert await Lock(client, LEASE, "istio-system", "leader").read() is None
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    await client.close()
    await server.stop()


async def test_cancelled_requests_do_not_use_up_the_limit() -> None:
    throttle = Throttle(20, 1)
    await throttle.acquire()
    cancelled = [asyncio.create_task(throttle.acquire()) for _ in range(10_000)]  # 500 s
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    async with asyncio.timeout(30):
        await throttle.acquire()
