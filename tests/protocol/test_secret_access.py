"""Caching of access reviews for secrets."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import AccountKey, Mesh
from pilot.xds.push.connection import Connection
from pilot.xds.push.discovery import Discovery
from pilot.xds.secret_access import SecretAccess
from testing.clients.scripted_stream import delta

PROXY = Proxy(type=NodeType.SIDECAR, id="web-0.a", ips=("10.0.0.1",), dns_domain="", namespace="a", metadata={})


def make_connection(identity: str = "", **metadata: str) -> Connection:
    proxy = msgspec.structs.replace(PROXY, identity=identity, metadata=metadata)
    return Connection(3, "key", proxy, "10.0.0.1:99", 0.0, delta(), {})


@pytest.mark.parametrize(
    ("answer", "before", "decision", "seconds", "warnings"),
    [
        (True, None, True, 300.0, []),
        (False, True, False, 60.0, []),
        (OSError("no route"), True, True, 300.0, ["cannot review whether a/web may read secrets: no route"]),
        (OSError(), None, False, 60.0, ["cannot review whether a/web may read secrets: OSError"]),
    ],
)
async def test_review_is_cached_and_wakes_proxies(
    answer: bool | Exception,
    before: bool | None,
    decision: bool,
    seconds: float,
    warnings: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    db, account, now = Mesh(), AccountKey("east", "a", "web"), 1000.0
    discovery = Discovery(db, Metrics(), proxy_plan)
    woken: list[Any] = []
    discovery.wake = lambda nodes, reasons, event=0: woken.append(dict(reasons)) or 0  # type: ignore[assignment]
    discovery.commit([(db.secret_access, account, before)], {"secret": 1})
    woken.clear()
    reviews: list[AccountKey] = []

    async def review(key: AccountKey) -> bool:
        reviews.append(key)
        if isinstance(answer, Exception):
            raise answer
        return answer

    access = SecretAccess(discovery, review, lambda: now)

    async def request() -> int:
        """Request secrets twice, and return the number of reviews."""
        count = len(reviews)
        for _ in range(2):
            access.on_request(make_connection(identity="spiffe://cluster.local/ns/a/sa/web", CLUSTER_ID="east"))
        for _ in range(5):
            await asyncio.sleep(0)
        return len(reviews) - count

    assert (await request(), reviews) == (1, [account])
    assert (db.secret_access.peek(account), woken, caplog.messages) == (decision, [{"secret": 1}], warnings)
    now += seconds - 1
    assert await request() == 0
    now += 1
    assert await request() == 1
