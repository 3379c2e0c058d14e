"""A collection that is followed is always what the server has, whatever happens on the way."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from pilot.kube.api_client import ApiClient
from pilot.kube.informer import PAGE_SIZE, Informer, WatchedCollection
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.backoff import Backoff
from testing.apiserver.faults import WatchEnd
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import PATIENCE, QUICK, Known, pace, until

MAPS = WatchedCollection("/api/v1/configmaps")


def config_map(name: str, value: int = 0, namespace: str = "a", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": str(value)}}


class Following:
    """What somebody who follows the ConfigMaps of a server has been told."""

    def __init__(
        self, server: ApiServer, streams: bool, collection: WatchedCollection = MAPS, backoff: Backoff = QUICK.backoff
    ) -> None:
        self.server, self.credentials = server, Known(server)
        self.client = ApiClient(self.credentials, timeouts=PATIENCE)
        self.have: dict[NamespacedName, str] = {}
        self.told: list[tuple[str, bool]] = []
        self.informer = Informer(
            self.client, collection, self.receive, pace(streams)._replace(backoff=backoff), random.Random(1)
        )

    async def receive(self, changes: Sequence[ObjectChange]) -> None:
        await asyncio.sleep(0)
        for name, raw in changes:
            self.told.append((name.name, raw is not None))
            if raw is None:
                assert self.have.pop(name, None) is not None, f"{name} was not there"
            else:
                self.have[name] = msgspec.json.decode(raw).get("data", {}).get("value", "")

    def is_current(self) -> bool:
        return self.have == {
            NamespacedName(*key): s.plain["data"]["value"]
            for key, s in self.server.store.collection(("", "configmaps")).objects.items()
        }


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(params=[False, True], ids=["pages", "streams"])
def streams(request: pytest.FixtureRequest) -> bool:
    return request.param


@contextlib.asynccontextmanager
async def following(
    server: ApiServer, streams: bool = False, collection: WatchedCollection = MAPS, backoff: Backoff = QUICK.backoff
) -> AsyncIterator[Following]:
    made = Following(server, streams, collection, backoff)
    task = asyncio.create_task(made.informer.run())
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await made.client.close()


async def test_what_is_there_is_received_before_it_is_synced_and_changes_after(
    server: ApiServer, streams: bool
) -> None:
    for number in range(PAGE_SIZE + 10):
        server.put(config_map(f"m{number}"))
    async with following(server, streams) as it:
        await it.informer.synced.wait()
        assert it.is_current()
        server.put(config_map("m0", 1))
        server.delete(config_map("m1"))
        server.put(config_map("new"))
        await until(it.is_current)
        assert it.told[-3:] == [("m0", True), ("m1", False), ("new", True)]
    lists = [asked for asked in server.requests if asked.verb == "list"]
    assert len(lists) == (0 if streams else 2)


@pytest.mark.parametrize("how", ["close", "abort", "half a line", "expired"])
async def test_a_watch_that_ends_is_begun_again_and_nothing_is_told_twice(
    server: ApiServer, streams: bool, how: WatchEnd
) -> None:
    server.put(config_map("a"))
    server.put(config_map("b"))
    async with following(server, streams) as it:
        for step in range(3):
            await until(lambda: len(server.faults.watches) == 1)
            assert server.faults.end_watches(how) == 1
            server.put(config_map("b", step + 1))
            await until(it.is_current)
        assert it.told == [("a", True), ("b", True), ("b", True), ("b", True), ("b", True)]


async def test_a_watch_that_told_of_something_is_begun_again_without_a_wait(server: ApiServer) -> None:
    def begun() -> int:
        return sum(asked.verb == "watch" for asked in server.requests)

    async with following(server, backoff=Backoff(3600, 3600)) as it:
        for step in range(2):
            await until(lambda: begun() == step + 1)  # noqa: B023
            server.put(config_map("a", step))
            await until(it.is_current)
            assert server.faults.end_watches("close") == 1
        await until(lambda: begun() == 3, seconds=10)


async def test_what_was_deleted_while_nobody_watched_is_told_by_the_next_list(server: ApiServer, streams: bool) -> None:
    for name in "abc":
        server.put(config_map(name))
    async with following(server, streams) as it:
        await it.informer.synced.wait()
        await server.stop()
        server.delete(config_map("b"))
        server.put(config_map("c", 1))
        server.store.compact()
        assert len(it.have) == 3
        await server.start()
        await until(it.is_current)
        assert sorted(it.told[3:]) == [("b", False), ("c", True)]


@pytest.mark.parametrize("code", [401, 429, 500, 503])
async def test_refusals_are_tried_again(server: ApiServer, streams: bool, code: int) -> None:
    server.put(config_map("a"))
    server.faults.refuse(code, times=4)
    async with following(server, streams) as it:
        await until(it.is_current)
        assert it.informer.synced.is_set()
        assert server.faults.spent


async def test_a_server_without_streams_of_all_objects_is_read_in_pages(server: ApiServer) -> None:
    server.faults.no_watch_lists = True
    server.put(config_map("a"))
    async with following(server, streams=True) as it:
        await it.informer.synced.wait()
        assert it.is_current()
    assert [asked.verb for asked in server.requests][:2] == ["watch", "list"]


async def test_a_list_whose_pages_expire_is_begun_again(server: ApiServer) -> None:
    for number in range(2 * PAGE_SIZE):
        server.put(config_map(f"m{number}"))
    compacted = False

    def at_the_second_page(asked: Any) -> bool:
        nonlocal compacted
        if asked.query.get("continue") and not compacted:
            compacted = True
            server.put(config_map("m1", 5))
            server.store.compact()
        return False

    server.faults.refuse(500, matching=at_the_second_page)
    async with following(server) as it:
        await it.informer.synced.wait()
        assert compacted
        assert it.is_current()
        assert len(it.told) == 2 * PAGE_SIZE + 1, "each once, and m1 again"


async def test_events_that_come_twice_and_in_another_order_do_no_harm(server: ApiServer, seed: int) -> None:
    server.faults.disorder = random.Random(seed)
    choose = random.Random(seed)
    async with following(server) as it:
        await until(lambda: len(server.faults.watches) == 1)
        for _ in range(20):
            for _ in range(10):
                name = choose.choice("abcdef")
                if server.get("", "configmaps", "a", name) is not None and choose.random() < 0.4:
                    server.delete(config_map(name))
                else:
                    server.put(config_map(name, choose.randrange(1000)))
            await until(it.is_current)


async def test_disorder_of_events_leaves_a_stream_of_all_objects_whole(server: ApiServer, seed: int) -> None:
    for number in range(30):
        server.put(config_map(f"c{number}"))
    server.faults.disorder = random.Random(seed)
    async with following(server, streams=True) as it:
        await it.informer.synced.wait()
        assert it.is_current()


async def test_a_new_token_is_taken_when_the_old_one_has_expired(server: ApiServer) -> None:
    token = server.tokens.service_account("istio-system", "istiod", "one")
    async with following(server) as it:
        await it.informer.synced.wait()
        server.tokens.service_account("istio-system", "istiod", "two")
        server.tokens.by_value["one"] = token._replace(expired=True)
        it.credentials.token = "two"
        server.faults.end_watches("abort")
        server.put(config_map("a"))
        await until(it.is_current)


async def test_selectors_are_the_servers(server: ApiServer, streams: bool) -> None:
    server.put(config_map("a", kept="yes"))
    server.put(config_map("b", kept="no"))
    server.put(config_map("c", kept="yes"))
    async with following(
        server, streams, WatchedCollection("/api/v1/configmaps", "kept=yes", "metadata.name!=c")
    ) as it:
        await it.informer.synced.wait()
        assert {name.name for name in it.have} == {"a"}
        server.put(config_map("a", kept="no"))
        server.put(config_map("b", kept="yes"))
        await until(lambda: {name.name for name in it.have} == {"b"})


async def test_metadata_alone_has_no_data(server: ApiServer, streams: bool) -> None:
    server.put(config_map("a", 7))
    async with following(server, streams, MAPS._replace(metadata_only=True)) as it:
        await it.informer.synced.wait()
        assert it.have == {NamespacedName("a", "a"): ""}


async def test_bookmarks_move_the_point_from_which_a_watch_goes_on(server: ApiServer) -> None:
    server.put(config_map("a"))
    async with following(server) as it:
        await until(lambda: len(server.faults.watches) == 1)
        server.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": "a"}})
        server.faults.bookmark()
        await until(lambda: it.informer._revision == str(server.store.revision))
        server.faults.end_watches("close")
        await until(lambda: len([a for a in server.requests if a.verb == "watch"]) == 2)
        assert server.requests[-1].query["resourceVersion"] == str(server.store.revision)


@pytest.mark.parametrize("round_", range(20))
async def test_random_faults(server: ApiServer, streams: bool, seed: int, round_: int) -> None:
    """After any sequence of changes and faults what is followed is what a fresh start reads."""
    choose = random.Random(f"{seed}-{round_}-{streams}")
    async with following(server, streams) as it:
        for _ in range(choose.randint(5, 15)):
            await _disturb(server, choose)
            await asyncio.sleep(0)
        await server.start() if not server.is_listening else None
        server.faults.no_watch_lists = False
        await until(it.is_current)


async def _disturb(server: ApiServer, choose: random.Random) -> None:
    match choose.randrange(9):
        case 0 | 1 | 2:
            server.put(config_map(choose.choice("abcdef"), choose.randrange(100)))
        case 3:
            if objects := list(server.store.collection(("", "configmaps")).objects):
                server.store.delete(("", "configmaps"), choose.choice(objects))
        case 4:
            server.faults.end_watches(choose.choice(("close", "abort", "half a line", "expired")))
        case 5:
            server.store.compact()
        case 6:
            server.faults.refuse(choose.choice((401, 403, 404, 410, 429, 500, 503, 504)), times=choose.randint(1, 3))
        case 7:
            server.faults.delay(0.001)
        case 8:
            await server.stop()
            server.put(config_map("late", choose.randrange(100)))
            await server.start()
