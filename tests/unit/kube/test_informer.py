"""An informer's view of a collection matches the server, whatever faults occur."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from pilot.kube.api_client import ApiClient
from pilot.kube.informer import Informer, WatchedCollection
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.kube.pages import PAGE_SIZE
from pilot.lib.backoff import Backoff
from testing.apiserver.faults import WatchEnd
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import QUICK_WATCH, TIMEOUTS, StaticAccess, until, watch_options

MAPS = WatchedCollection("/api/v1/configmaps")


def config_map(name: str, value: int = 0, namespace: str = "a", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": str(value)}}


class RecordingInformer:
    """An informer of ConfigMaps, the objects it has reported, and its notifications. A closed `gate` blocks reports."""

    def __init__(
        self,
        server: ApiServer,
        streams: bool,
        collection: WatchedCollection = MAPS,
        backoff: Backoff = QUICK_WATCH.backoff,
    ) -> None:
        self.server, self.credentials = server, StaticAccess(server)
        self.client = ApiClient(self.credentials, timeouts=TIMEOUTS)
        self.objects: dict[NamespacedName, str] = {}
        self.notifications: list[tuple[str, bool]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.informer = Informer(
            self.client, collection, self.receive, watch_options(streams)._replace(backoff=backoff), random.Random(1)
        )

    async def receive(self, changes: Sequence[ObjectChange]) -> None:
        await asyncio.sleep(0)
        await self.gate.wait()
        for name, raw in changes:
            self.notifications.append((name.name, raw is not None))
            if raw is None:
                assert self.objects.pop(name, None) is not None, f"{name} did not exist"
            else:
                self.objects[name] = msgspec.json.decode(raw).get("data", {}).get("value", "")

    def is_current(self) -> bool:
        return self.objects == {
            NamespacedName(*key): s.plain["data"]["value"]
            for key, s in self.server.store.collection(("", "configmaps")).objects.items()
        }


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


@pytest.fixture(params=[False, True], ids=["pages", "streams"])
def streams(request: pytest.FixtureRequest) -> bool:
    return request.param


@contextlib.asynccontextmanager
async def running_informer(
    server: ApiServer,
    streams: bool = False,
    collection: WatchedCollection = MAPS,
    backoff: Backoff = QUICK_WATCH.backoff,
) -> AsyncIterator[RecordingInformer]:
    client = RecordingInformer(server, streams, collection, backoff)
    task = asyncio.create_task(client.informer.run())
    try:
        yield client
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.client.close()


async def test_initial_objects_are_received_before_synced(server: ApiServer, streams: bool) -> None:
    for number in range(PAGE_SIZE + 10):
        server.put(config_map(f"m{number}"))
    async with running_informer(server, streams) as recorder:
        await recorder.informer.synced.wait()
        assert recorder.is_current()
        server.put(config_map("m0", 1))
        server.delete(config_map("m1"))
        server.put(config_map("new"))
        await until(recorder.is_current)
        assert recorder.notifications[-3:] == [("m0", True), ("m1", False), ("new", True)]
    lists = [request for request in server.requests if request.verb == "list"]
    assert len(lists) == (0 if streams else 2)


@pytest.mark.parametrize("end", ["close", "abort", "half a line", "expired"])
async def test_closed_watch_is_restarted_without_repeating_notifications(
    server: ApiServer, streams: bool, end: WatchEnd
) -> None:
    server.put(config_map("a"))
    server.put(config_map("b"))
    async with running_informer(server, streams) as recorder:
        for step in range(3):
            await until(lambda: len(server.faults.watches) == 1)
            assert server.faults.end_watches(end) == 1
            server.put(config_map("b", step + 1))
            await until(recorder.is_current)
        assert recorder.notifications == [("a", True), ("b", True), ("b", True), ("b", True), ("b", True)]


async def test_watch_with_events_is_restarted_immediately(server: ApiServer) -> None:
    def watch_count() -> int:
        return sum(request.verb == "watch" for request in server.requests)

    async with running_informer(server, backoff=Backoff(3600, 3600)) as recorder:
        for step in range(2):
            await until(lambda: watch_count() == step + 1)  # noqa: B023
            server.put(config_map("a", step))
            await until(recorder.is_current)
            assert server.faults.end_watches("close") == 1
        await until(lambda: watch_count() == 3, seconds=10)


async def test_deletion_during_an_outage_is_reported_by_the_next_list(server: ApiServer, streams: bool) -> None:
    for name in "abc":
        server.put(config_map(name))
    async with running_informer(server, streams) as recorder:
        await recorder.informer.synced.wait()
        await server.stop()
        server.delete(config_map("b"))
        server.put(config_map("c", 1))
        server.store.compact()
        assert len(recorder.objects) == 3
        await server.start()
        await until(recorder.is_current)
        assert sorted(recorder.notifications[3:]) == [("b", False), ("c", True)]


async def test_interrupted_deletion_is_reported_later(server: ApiServer, streams: bool) -> None:
    server.put(config_map("a"))
    async with running_informer(server, streams) as recorder:
        await recorder.informer.synced.wait()
        recorder.gate.clear()
        server.delete(config_map("a"))
        await until(lambda: recorder.informer.receiving)
    recorder.gate.set()
    await recorder.informer.clear()
    assert recorder.notifications == [("a", True), ("a", False)]


@pytest.mark.parametrize("code", [401, 429, 500, 503])
async def test_error_responses_are_retried(server: ApiServer, streams: bool, code: int) -> None:
    server.put(config_map("a"))
    server.faults.refuse(code, times=4)
    async with running_informer(server, streams) as recorder:
        await until(recorder.is_current)
        assert recorder.informer.synced.is_set()
        assert server.faults.spent


async def test_server_without_watch_lists_is_listed_in_pages(server: ApiServer) -> None:
    server.faults.no_watch_lists = True
    server.put(config_map("a"))
    async with running_informer(server, streams=True) as recorder:
        await recorder.informer.synced.wait()
        assert recorder.is_current()
    assert [request.verb for request in server.requests][:2] == ["watch", "list"]


async def test_expired_list_is_restarted(server: ApiServer) -> None:
    for number in range(2 * PAGE_SIZE):
        server.put(config_map(f"m{number}"))
    compacted = False

    def at_the_second_page(request: Any) -> bool:
        nonlocal compacted
        if request.query.get("continue") and not compacted:
            compacted = True
            server.put(config_map("m1", 5))
            server.store.compact()
        return False

    server.faults.refuse(500, matching=at_the_second_page)
    async with running_informer(server) as recorder:
        await recorder.informer.synced.wait()
        assert compacted
        assert recorder.is_current()
        assert len(recorder.notifications) == 2 * PAGE_SIZE + 1, "each object once, and m1 twice"


async def test_duplicate_and_reordered_events_are_tolerated(server: ApiServer, seed: int) -> None:
    server.faults.disorder = random.Random(seed)
    rng = random.Random(seed)
    async with running_informer(server) as recorder:
        await until(lambda: len(server.faults.watches) == 1)
        for _ in range(20):
            for _ in range(10):
                name = rng.choice("abcdef")
                if server.get("", "configmaps", "a", name) is not None and rng.random() < 0.4:
                    server.delete(config_map(name))
                else:
                    server.put(config_map(name, rng.randrange(1000)))
            await until(recorder.is_current)


async def test_reordered_watch_list_is_complete(server: ApiServer, seed: int) -> None:
    for number in range(30):
        server.put(config_map(f"c{number}"))
    server.faults.disorder = random.Random(seed)
    async with running_informer(server, streams=True) as recorder:
        await recorder.informer.synced.wait()
        assert recorder.is_current()


async def test_new_token_is_used_after_expiry(server: ApiServer) -> None:
    token = server.tokens.service_account("istio-system", "istiod", "one")
    async with running_informer(server) as recorder:
        await recorder.informer.synced.wait()
        server.tokens.service_account("istio-system", "istiod", "two")
        server.tokens.by_value["one"] = token._replace(expired=True)
        recorder.credentials.token = "two"
        server.faults.end_watches("abort")
        server.put(config_map("a"))
        await until(recorder.is_current)


async def test_selectors_apply_at_the_server(server: ApiServer, streams: bool) -> None:
    server.put(config_map("a", kept="yes"))
    server.put(config_map("b", kept="no"))
    server.put(config_map("c", kept="yes"))
    async with running_informer(
        server, streams, WatchedCollection("/api/v1/configmaps", "kept=yes", "metadata.name!=c")
    ) as recorder:
        await recorder.informer.synced.wait()
        assert {name.name for name in recorder.objects} == {"a"}
        server.put(config_map("a", kept="no"))
        server.put(config_map("b", kept="yes"))
        await until(lambda: {name.name for name in recorder.objects} == {"b"})


async def test_metadata_only_objects_have_no_data(server: ApiServer, streams: bool) -> None:
    server.put(config_map("a", 7))
    async with running_informer(server, streams, MAPS._replace(metadata_only=True)) as recorder:
        await recorder.informer.synced.wait()
        assert recorder.objects == {NamespacedName("a", "a"): ""}


async def test_bookmarks_advance_the_resource_version(server: ApiServer) -> None:
    server.put(config_map("a"))
    async with running_informer(server) as recorder:
        await until(lambda: len(server.faults.watches) == 1)
        server.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": "a"}})
        server.faults.bookmark()
        await until(lambda: recorder.informer._revision == str(server.store.revision))
        server.faults.end_watches("close")
        await until(lambda: len([a for a in server.requests if a.verb == "watch"]) == 2)
        assert server.requests[-1].query["resourceVersion"] == str(server.store.revision)


async def test_the_first_response_after_an_outage_ends_the_backoff_of_all_watches(server: ApiServer) -> None:
    await server.stop()
    server.put(config_map("a"))
    async with running_informer(server, backoff=Backoff(3600.0, 3600.0)) as recorder:
        await until(lambda: bool(recorder.informer.error))
        await server.start()
        await recorder.client.call("GET", "/api/v1/namespaces")
        await until(recorder.is_current)


@pytest.mark.parametrize("round_", range(20))
async def test_random_faults(server: ApiServer, streams: bool, seed: int, round_: int) -> None:
    """After any sequence of changes and faults the informer has the state of the server."""
    rng = random.Random(f"{seed}-{round_}-{streams}")
    async with running_informer(server, streams) as recorder:
        for _ in range(rng.randint(5, 15)):
            await _disturb(server, rng)
            await asyncio.sleep(0)
        await server.start() if not server.is_listening else None
        server.faults.no_watch_lists = False
        await until(recorder.is_current)


async def _disturb(server: ApiServer, rng: random.Random) -> None:
    match rng.randrange(9):
        case 0 | 1 | 2:
            server.put(config_map(rng.choice("abcdef"), rng.randrange(100)))
        case 3:
            if objects := list(server.store.collection(("", "configmaps")).objects):
                server.store.delete(("", "configmaps"), rng.choice(objects))
        case 4:
            server.faults.end_watches(rng.choice(("close", "abort", "half a line", "expired")))
        case 5:
            server.store.compact()
        case 6:
            server.faults.refuse(rng.choice((401, 403, 404, 410, 429, 500, 503, 504)), times=rng.randint(1, 3))
        case 7:
            server.faults.delay(0.001)
        case 8:
            await server.stop()
            server.put(config_map("late", rng.randrange(100)))
            await server.start()


class Postponed:
    """Postpones the objects of the namespace "z" once one of them has been received. `names` are the postponed ones."""

    def __init__(self, recorder: RecordingInformer) -> None:
        self._recorder, self.names = recorder, set[NamespacedName]()

    def namespaces(self) -> Sequence[str]:
        return ["z"] if any(name.namespace == "z" for name in self._recorder.objects) else []

    def postpone(self, names: Iterable[NamespacedName]) -> None:
        self.names.update(names)


@contextlib.asynccontextmanager
async def postponing(server: ApiServer, streams: bool) -> AsyncIterator[tuple[RecordingInformer, Postponed]]:
    """Yield a synchronized informer that has left out most objects of the namespace "z"."""
    for number in range(4 * PAGE_SIZE):
        server.put(config_map(f"m{number}", namespace="z"))
    server.put(config_map("m", namespace="a"))
    recorder = RecordingInformer(server, streams)
    postponed = recorder.informer.postponement = Postponed(recorder)
    task = asyncio.create_task(recorder.informer.run())
    try:
        await recorder.informer.synced.wait()
        assert set(recorder.informer.unread) == {"z"}
        yield recorder, postponed
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await recorder.client.close()


def left_out(recorder: RecordingInformer) -> str:
    """Return the name of an object that the list has left out."""
    return next(name for n in range(4 * PAGE_SIZE) if NamespacedName("z", name := f"m{n}") not in recorder.objects)


async def test_lists_leave_out_a_postponed_namespace_whose_names_are_read_later(
    server: ApiServer, streams: bool
) -> None:
    async with postponing(server, streams) as (recorder, postponed):
        delivered = set(recorder.objects)
        assert NamespacedName("a", "m") in delivered
        assert not postponed.names
        await recorder.informer.read_names()
        assert not recorder.informer.unread
        assert len(delivered) + len(postponed.names) == 4 * PAGE_SIZE + 1
        assert len(postponed.names) >= 2 * PAGE_SIZE
        assert delivered.isdisjoint(postponed.names)
        waiting = min(postponed.names)
        server.put(config_map(waiting.name, 5, namespace="z"))
        await until(lambda: recorder.objects.get(waiting) == "5")
        read = [change.name async for page in recorder.informer.read_namespace("z") for change in page]
        assert len(read) == 4 * PAGE_SIZE


async def test_changes_are_delivered_while_names_are_unread(server: ApiServer, streams: bool) -> None:
    async with postponing(server, streams) as (recorder, postponed):
        changed = NamespacedName("z", left_out(recorder))
        server.put(config_map(changed.name, 7, namespace="z"))
        server.put(config_map("new", 8, namespace="z"))
        await until(lambda: recorder.objects.get(changed) == "7")
        await until(lambda: recorder.objects.get(NamespacedName("z", "new")) == "8")
        await recorder.informer.read_names()
        assert postponed.names.isdisjoint(recorder.objects)


async def test_changes_that_arrive_before_older_names_prevail(server: ApiServer, streams: bool) -> None:
    async with postponing(server, streams) as (recorder, postponed):
        created, call = NamespacedName("z", "new"), recorder.client.call

        async def call_slowly(*args: Any, **options: Any) -> bytes:
            response = await call(*args, **options)
            for number in range(4 * PAGE_SIZE):
                server.delete(config_map(f"m{number}", namespace="z"))
            server.put(config_map(created.name, namespace="z"))
            await until(lambda: created in recorder.objects)
            return response

        recorder.client.call = call_slowly  # type: ignore[method-assign]
        await recorder.informer.read_names()
        assert not postponed.names
        assert recorder.is_current()


async def test_deletion_of_a_known_object_in_a_postponed_namespace_is_reported_when_names_are_read(
    server: ApiServer, streams: bool
) -> None:
    async with postponing(server, streams) as (recorder, _):
        obsolete = next(name for name in recorder.objects if name.namespace == "z")
        server.faults.refuse(503, times=1)
        server.faults.end_watches("abort")
        server.delete(config_map(obsolete.name, namespace="z"))
        server.store.compact()
        server.put(config_map("m", 1, namespace="a"))
        await until(lambda: recorder.objects[NamespacedName("a", "m")] == "1")
        assert obsolete in recorder.objects
        await recorder.informer.read_names()
        assert obsolete not in recorder.objects
