"""Request bodies: size, time and the share of an address."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from testing.kube.webhooks import make_injector, pod, review, serving
from webhook.server import bodies
from webhook.server.bodies import OVERHEAD, BodyBudget

KIB = 1 << 10


def test_address_may_use_as_much_as_is_left_for_all_others() -> None:
    budget = BodyBudget(100 * KIB)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(budget.reserve("a"))
        first.grow(50 * KIB - OVERHEAD)
        with pytest.raises(web.HTTPTooManyRequests):
            first.grow(1)
        with pytest.raises(web.HTTPTooManyRequests) as error, budget.reserve("a"):
            pass
        assert error.value.text == f"too many reviews: those from a take {50 * KIB} bytes\n"
        assert error.value.headers["Retry-After"] == "1"
        other = stack.enter_context(budget.reserve("b"))
        other.grow(25 * KIB - OVERHEAD)
        with pytest.raises(web.HTTPTooManyRequests):
            other.grow(1)
    with budget.reserve("b") as alone:
        alone.grow(50 * KIB - OVERHEAD)


async def unfinished(port: int, path: str, part: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the first part of a body that never ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n"
    writer.write(head.encode() + part)
    return reader, writer


@contextlib.asynccontextmanager
async def unfinished_bodies(
    port: int, path: str, count: int, size: int
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    connections = [await unfinished(port, path, b" " * size) for _ in range(count)]
    yield connections
    for _, writer in connections:
        writer.close()


@pytest.mark.parametrize("path", ["/inject", "/validate"])
async def test_unfinished_bodies_are_given_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "READ_TIMEOUT", 0.05)
    async with serving(make_injector()) as client:
        server = client.client.server
        assert isinstance(server, TestServer)
        async with unfinished_bodies(server.port or 0, path, 1, 100) as [(reader, _)]:
            assert b"408 Request Timeout" in await reader.readline()
        assert client.metric(
            "sidecar_injection_failure_total 1" if path == "/inject" else 'galley_validation_http_error{status="408"} 1'
        )


@pytest.mark.parametrize("path", ["/inject", "/validate"])
async def test_unfinished_bodies_cannot_use_more_than_a_share_of_memory(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies.BodyBudget.__init__, "__defaults__", (8 << 20,))
    async with serving(make_injector()) as client:
        server = client.client.server
        assert isinstance(server, TestServer)
        async with unfinished_bodies(server.port or 0, path, 8, 1 << 20) as connections:
            endings = [asyncio.create_task(reader.readline()) for reader, _ in connections]
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            refused = [ending for ending in endings if ending.done()]
            assert all(b"429 Too Many Requests" in ending.result() for ending in refused)
            for ending in endings:
                ending.cancel()
            webhook = path.removeprefix("/")
            metric = f'pilot_webhook_rejected_reviews{{reason="requests",webhook="{webhook}"}} '
            assert metric in client.metrics.exposition().decode()
        assert (await client.response("/inject", review(pod())))["allowed"], "their memory is free again"


async def test_body_in_thousands_of_parts_is_read_in_linear_time() -> None:
    body = b"[" + b" " * 200_000

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    async with (
        serving(make_injector()) as client,
        client.client.post("/validate", data=parts(), headers={"Content-Type": "application/json"}) as response,
    ):
        assert response.status == 200
        assert "could not decode body" in await response.text()


@pytest.mark.parametrize("path", ["/inject", "/validate"])
async def test_compressed_review_is_refused(path: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "compress"}
    async with (
        serving(make_injector()) as client,
        client.client.post(path, json=review(pod()), headers=headers) as response,
    ):
        assert response.status == 415
        assert (
            await response.text() == "Content-Encoding compress is not supported: send the body without compression\n"
        )
