"""Responses that are too large or nested too deeply, and redirects."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.ingest.cluster.kube_objects import KubeObjects
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.kube import api_client
from pilot.kube.access import Access
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.api_errors import ApiError, ResponseTooLarge, error_from_response
from pilot.kube.deep_json import DEEPEST, REPLACEMENT, replace_deep_parts
from pilot.kube.informer import Informer, WatchedCollection
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.kube.object_client import ObjectClient, RetryPolicy, VersionedKind
from pilot.kube.pages import LARGEST_PAGE, read_names_pages, read_pages
from pilot.lib.backoff import Backoff
from testing.kube.kube_access import make_rng, until, watch_options

KIND = VersionedKind("networking.istio.io/v1alpha3", "EnvoyFilter")
BASE = f"/apis/{KIND.api_version}"
COLLECTION = f"{BASE}/envoyfilters"
MEBIBYTE = 1 << 20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StaticCredentials:
    ttl = 1e9

    def __init__(self, url: str) -> None:
        self._url = url

    async def load(self) -> Access:
        return Access(self._url, "Bearer secret")


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[ApiClient]:
    """Run a server that answers every request with a handler, and return a client for it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = ApiClient(
        StaticCredentials(f"http://127.0.0.1:{runner.addresses[0][1]}"), timeouts=RequestTimeouts(5.0, 5.0, 5.0)
    )
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


class EndlessBody:
    """A response that sends `data` forever. `sent` is the number of bytes that it has sent."""

    def __init__(self, data: bytes, status: int = 200) -> None:
        self._data, self._status, self.sent = data, status, 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self._status)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(self._data)
                self.sent += len(self._data)
        return response


# -- sizes -------------------------------------------------------------------------------------------------------------


async def test_endless_watch_line_is_abandoned() -> None:
    body = EndlessBody(b"x" * MEBIBYTE)
    async with serving(body.answer) as client:
        with pytest.raises(ResponseTooLarge, match=r"^/w: a line of the response is larger than 33554432 bytes$"):
            [lines async for lines in client.lines("/w", {})]
    assert body.sent < 2 * api_client.LARGEST_RESPONSE


async def test_endless_body_is_abandoned() -> None:
    body = EndlessBody(b"x" * MEBIBYTE)
    async with serving(body.answer) as client:
        with pytest.raises(ResponseTooLarge, match=r"^/a: the response is larger than 33554432 bytes$"):
            await client.call("GET", "/a")
        with pytest.raises(ResponseTooLarge, match=r"^/a: the response is larger than 1000 bytes$"):
            await client.call("GET", "/a", largest=1000)
    assert body.sent < 3 * api_client.LARGEST_RESPONSE


async def test_endless_error_response_is_cut() -> None:
    body = EndlessBody(b"x" * MEBIBYTE, 500)
    async with serving(body.answer) as client:
        with pytest.raises(ApiError, match=r"^500: xxx"):
            await client.call("GET", "/a")
    assert body.sent < 20 * MEBIBYTE


async def test_long_line_in_small_parts_is_assembled_in_linear_time() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(20 * 1024):
            await response.write(b"y" * 1024)
        await response.write(b"\nlast\n")
        return response

    async with serving(handle) as client:
        lines = [line async for lines in client.lines("/w", {}) for line in lines]
    assert [len(line) for line in lines] == [20 * MEBIBYTE, 4]


async def test_compressed_response_is_not_expanded() -> None:
    bomb = gzip.compress(b"x" * 64 * MEBIBYTE)

    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with serving(handle) as client:
        assert await client.call("GET", "/a") == bomb


def test_delay_that_a_server_asks_for_is_limited() -> None:
    assert error_from_response(429, b"", "9" * 400).retry_after == 300.0
    assert error_from_response(429, b'{"details": {"retryAfterSeconds": 1e300}}').retry_after == 300.0


async def test_redirects_are_not_followed() -> None:
    paths = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    async with serving(handle) as client:
        with pytest.raises(ApiError, match=r"^307: 307: Temporary Redirect$"):
            await client.call("GET", "/a")
        with pytest.raises(ApiError, match=r"^307: 307: Temporary Redirect$"):
            [lines async for lines in client.lines("/w", {})]
    assert paths == ["/a", "/w"]


# -- pages -------------------------------------------------------------------------------------------------------------


class Pages:
    """A list of `count` objects, of which the first `large` have `size` bytes each, and the others none. `limits`
    contains the page sizes of the requests, which are 0 for the whole list."""

    def __init__(self, count: int, size: int, large: int = 1_000_000) -> None:
        self._count, self._size, self._large, self.limits = count, size, large, list[int]()

    async def fetch(self, query: dict[str, str], largest: int) -> bytes:
        begin, limit = int(query.get("continue", 0)), int(query.get("limit", 0))
        self.limits.append(limit)
        end = min(begin + limit, self._count) if limit else self._count
        if (min(end, self._large) - min(begin, self._large)) * self._size > largest:
            raise ResponseTooLarge("too large")
        metadata = {"resourceVersion": "7", "continue": str(end) if end < self._count else ""}
        return json.dumps({"metadata": metadata, "items": list(map(self._item, range(begin, end)))}).encode()

    @staticmethod
    def _item(number: int) -> dict[str, Any]:
        return {"n": number, "metadata": {"name": str(number)}}

    async def read(self) -> list[int]:
        return [json.loads(bytes(item))["n"] async for page in read_pages(self.fetch) for item in page.items or ()]


async def test_pages_of_ordinary_objects_are_not_divided() -> None:
    pages = Pages(1200, 16_000)
    assert await pages.read() == list(range(1200))
    assert pages.limits == [500] * 3


async def test_pages_of_large_objects_are_divided() -> None:
    pages = Pages(40, 3 * MEBIBYTE)
    assert await pages.read() == list(range(40))
    assert (pages.limits[:9], set(pages.limits[9:])) == ([500, 250, 125, 62, 31, 15, 7, 3, 1], {2, 4})
    largest = Pages(3, 30 * MEBIBYTE)
    assert await largest.read() == [0, 1, 2]
    with pytest.raises(ResponseTooLarge):
        await Pages(3, 33 * MEBIBYTE).read()


async def test_pages_after_a_large_object_are_not_divided() -> None:
    pages = Pages(10_000, 10 * MEBIBYTE, large=1)
    assert await pages.read() == list(range(10_000))
    assert len(pages.limits) < 40


async def test_names_are_read_at_once_unless_they_are_too_large() -> None:
    for size, limits in ((500, [0]), (1000, [0, 2000, 2000, 2000])):
        pages = Pages(6000, size)
        names = [int(head.metadata.name) async for page in read_names_pages(pages.fetch) for head in page.items or ()]
        assert (names, pages.limits) == (list(range(6000)), limits)


async def test_bodies_of_pages_are_limited() -> None:
    body = EndlessBody(b" " * MEBIBYTE)
    async with serving(body.answer) as client:
        with pytest.raises(ResponseTooLarge):
            await client.call("GET", "/a", largest=LARGEST_PAGE)
    assert body.sent < 3 * LARGEST_PAGE


# -- depth -------------------------------------------------------------------------------------------------------------


def nest(depth: int) -> str:
    return '{"]":["\\"[{",' * (depth // 2) + "1" + "]}" * (depth // 2)


def filter_text(name: str, version: int, value: str = "1") -> str:
    metadata = f'{{"name":"{name}","namespace":"shop","resourceVersion":"{version}"}}'
    return f'{{"apiVersion":"{KIND.api_version}","kind":"EnvoyFilter","metadata":{metadata},"spec":{{"priority":{value}}}}}'


class FilterServer:
    """A server with EnvoyFilters, some of which are nested 9,900 levels deep, the maximum that API servers accept."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == BASE:
            return web.json_response(
                {"resources": [{"name": "envoyfilters", "kind": "EnvoyFilter", "namespaced": True}]}
            )
        if "watch" not in request.query:
            items = ",".join((filter_text("deep", 1, nest(9_900)), filter_text("one", 2)))
            return web.Response(text=f'{{"metadata":{{"resourceVersion":"4"}},"items":[{items}]}}')
        response = web.StreamResponse()
        await response.prepare(request)
        stream = "sendInitialEvents" in request.query
        if stream:
            await self._send(response, filter_text("deep", 1, nest(9_900)))
            await self._send(response, filter_text("one", 2))
            annotations = '{"k8s.io/initial-events-end":"true"}'
            end = f'{{"metadata":{{"resourceVersion":"4","annotations":{annotations}}}}}'
            await self._send(response, end, "BOOKMARK")
        elif request.query["resourceVersion"] == "4":
            await self._send(response, filter_text("other", 5, nest(9_900)))
            await self._send(response, filter_text("two", 6))
        if not stream:
            await asyncio.sleep(3600)
        return response

    async def _send(self, response: web.StreamResponse, text: str, kind: str = "ADDED") -> None:
        await response.write(f'{{"type":"{kind}","object":{text}}}\n'.encode())


class Collected:
    """A sink of edits."""

    def __init__(self) -> None:
        self.names = list[str]()

    def put(self, edits: Any) -> None:
        self.names += [edit[1].name for edit in edits]


@pytest.mark.parametrize("streams", [False, True])
async def test_deeply_nested_object_does_not_hide_the_others(streams: bool) -> None:
    changes: list[ObjectChange] = []

    async def receive(received: Sequence[ObjectChange]) -> None:
        changes.extend(received)

    async with serving(FilterServer().answer) as client:
        informer = Informer(client, WatchedCollection(COLLECTION), receive, watch_options(streams), make_rng(1))
        task = asyncio.create_task(informer.run())
        await until(lambda: len(changes) == 4)
        task.cancel()
        await asyncio.wait((task,))
    assert [(change.name.name, change.is_too_deep) for change in changes] == [
        ("deep", True),
        ("one", False),
        ("other", True),
        ("two", False),
    ]


async def test_deeply_nested_object_is_a_problem_of_this_object() -> None:
    problems, sink = ProblemStore(), Collected()
    objects = KubeObjects(ENVOY_FILTER, DocumentOrigin(), Ledger(problems).source(0, "cluster"), sink)
    deep = filter_text("deep", 1, nest(9_900)).encode()
    for raw in (deep, await replace_deep_parts(deep)):
        await objects.receive(
            [
                ObjectChange(NamespacedName("shop", "deep"), raw),
                ObjectChange(NamespacedName("shop", "one"), filter_text("one", 2).encode()),
            ]
        )
        assert [(p.code, p.object.name, p.message) for p in problems] == [
            ("too-deep", "deep", "the object is nested too deeply")
        ]
        assert set(sink.names) == {"one"}


async def test_list_of_the_object_client_contains_the_others() -> None:
    async with serving(FilterServer().answer) as client:
        objects = ObjectClient(client, "me", make_rng(1), retry=RetryPolicy(1, Backoff()))
        assert [item["metadata"]["name"] for item in await objects.list(KIND)] == ["deep", "one"]


async def test_replacement_of_deep_parts_is_linear_and_valid() -> None:
    text = ("[" + nest(2_000) + ',"]]' + "x" * 1000 + '",' + "[]," * 400_000 + nest(50) + "]").encode()
    replaced = json.loads(await replace_deep_parts(text))
    assert json.loads(nest(50)) == replaced[-1]
    assert len(replaced) == 400_003
    level, value = 0, replaced
    while isinstance(value, dict | list):
        level, value = level + 1, next(iter(value.values())) if isinstance(value, dict) else value[-1 if level else 0]
    assert (level, value) == (DEEPEST, json.loads(REPLACEMENT))
    assert await replace_deep_parts(b'{"a":"[[[["}') == b'{"a":"[[[["}'
