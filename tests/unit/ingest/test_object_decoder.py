"""Objects of API servers: large ones are checked in worker processes, and small ones in slices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio

from pilot.config.kinds.istio import ENVOY_FILTER, TELEMETRY, VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import SECRET
from pilot.ingest.cluster.kube_objects import KubeObjects
from pilot.ingest.decode import DocumentOrigin, decode_object
from pilot.ingest.ledger import Ledger
from pilot.ingest.object_decoder import LARGE, PROGRAM, ObjectDecoder
from pilot.ingest.problems import ProblemStore
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.fair_slots import FairSlots
from pilot.lib.workers.frames import JobLimits
from pilot.lib.workers.job_queue import JobSource
from pilot.lib.workers.pool import Overload, WorkerCrash, WorkerPool

NAME = NamespacedName("shop", "large")
ORIGIN = DocumentOrigin("west")
ROUTE = [{"destination": {"host": "a.example.com"}}]


def virtual_service(matches: Iterable[dict[str, Any]], **spec: Any) -> bytes:
    http = [{"match": list(matches), "route": ROUTE}]
    plain = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": NAME.name, "namespace": NAME.namespace},
        "spec": {"hosts": ["a.example.com"], "http": http, **spec},
    }
    return json.dumps(plain).encode()


def prefixes(count: int) -> list[dict[str, Any]]:
    return [{"uri": {"prefix": f"/{number:06}/"}} for number in range(count)]


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    workers = WorkerPool(PROGRAM, (JobLimits(10.0, 96 << 20),), longest_wait=100.0)
    try:
        yield workers
    finally:
        await workers.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "raw",
    [
        virtual_service(prefixes(3000)),
        virtual_service([*prefixes(3000), {"uri": {"prefix": "/000001/a"}}]),
        virtual_service([*prefixes(3000), {"uri": {"regex": "("}}]),
        virtual_service([{"uri": 1}] * 9000),
        virtual_service(prefixes(3000)).replace(b'"large"', b'"-"'),
        virtual_service(prefixes(3000)).replace(b'"name"', b'"labels": {"istio.io/rev": "other"}, "name"'),
    ],
    ids=["valid", "with a warning", "invalid", "of the wrong type", "with an invalid name", "of another revision"],
)
async def test_worker_and_process_decode_large_objects_alike(pool: WorkerPool, raw: bytes) -> None:
    assert len(raw) > LARGE
    origin = DocumentOrigin("west", revision="default")
    name = NamespacedName("shop", json.loads(raw)["metadata"]["name"])
    decoded, _ = await ObjectDecoder(pool).decode(VIRTUAL_SERVICE, origin, name, raw)
    assert decoded == decode_object(VIRTUAL_SERVICE, json.loads(raw), origin)


class CountingJobs:
    """Records the sizes of the objects that worker processes would check."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def run(self, caller: JobSource, *parts: bytes) -> bytes:
        self.sizes.append(len(parts[-1]))
        raise WorkerCrash("this test has no workers")


@pytest.mark.parametrize(("values", "is_large"), [(100, False), (1500, True)])
async def test_envoy_filter_is_checked_by_a_worker_unless_it_is_small(values: int, is_large: bool) -> None:
    metadata = {"filter_metadata": {"a": {f"k{number}": 1 for number in range(values)}}}
    patch = {"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {"metadata": metadata}}}
    plain = {"metadata": {"name": NAME.name, "namespace": NAME.namespace}, "spec": {"configPatches": [patch]}}
    jobs = CountingJobs()
    await ObjectDecoder(jobs).decode(ENVOY_FILTER, ORIGIN, NAME, json.dumps(plain).encode())
    assert bool(jobs.sizes) == is_large


@pytest.mark.parametrize(("filters", "is_large"), [(100, False), (500, True)])
async def test_telemetry_is_checked_by_a_worker_unless_it_is_small(filters: int, is_large: bool) -> None:
    logging = [{"filter": {"expression": f"response.code >= {number}"}} for number in range(filters)]
    plain = {"metadata": {"name": NAME.name, "namespace": NAME.namespace}, "spec": {"accessLogging": logging}}
    jobs = CountingJobs()
    await ObjectDecoder(jobs).decode(TELEMETRY, ORIGIN, NAME, json.dumps(plain).encode())
    assert bool(jobs.sizes) == is_large


@pytest.mark.slow
async def test_object_that_takes_too_long_is_a_problem_of_this_object() -> None:
    workers = WorkerPool(PROGRAM, (JobLimits(0.02, 96 << 20),), longest_wait=100.0)
    problems = ProblemStore()
    objects = KubeObjects(VIRTUAL_SERVICE, ORIGIN, Ledger(problems).source(0, "west"), Rows(), ObjectDecoder(workers))
    try:
        await objects.receive([ObjectChange(NAME, virtual_service(prefixes(20_000)))])
    finally:
        await workers.stop()
    assert [(p.code, p.object.name, p.message) for p in problems] == [
        ("too-expensive", "large", "the object cannot be checked: it takes more than 0.02 seconds of CPU time")
    ]


@pytest.mark.slow
async def test_deeply_nested_large_object_is_a_problem_of_this_object(pool: WorkerPool) -> None:
    patch = '{"a":' * 9000 + '"%s"' % ("x" * LARGE) + "}" * 9000
    raw = b'{"metadata": {"name": "large", "namespace": "shop"}, "spec": {"configPatches": [{"patch": {"value": %s}}]}}'
    decoded, _ = await ObjectDecoder(pool).decode(ENVOY_FILTER, ORIGIN, NAME, raw % patch.encode())
    assert [(p.code, p.object.name) for p in decoded.problems] == [("too-deep", "large")]


class Unavailable:
    """Has no workers."""

    async def run(self, caller: JobSource, *parts: bytes) -> bytes:
        raise AssertionError


async def test_small_objects_and_kinds_without_rules_need_no_worker() -> None:
    decoder = ObjectDecoder(Unavailable())
    assert (await decoder.decode(VIRTUAL_SERVICE, ORIGIN, NAME, virtual_service(prefixes(10)))).decoded.entries
    secret = {"metadata": {"name": "large", "namespace": "shop"}, "data": {"a": "AAAA" * LARGE}}
    assert (await decoder.decode(SECRET, ORIGIN, NAME, json.dumps(secret).encode())).decoded.entries


async def test_large_objects_of_one_namespace_do_not_delay_those_of_another() -> None:
    order: list[str] = []

    class Turns:
        """Runs one job at a time. The jobs of namespaces take turns."""

        def __init__(self) -> None:
            self._slots = FairSlots(1, 100)

        async def run(self, caller: JobSource, *parts: bytes) -> bytes:
            async with self._slots.slot(caller.namespace):
                order.append(caller.namespace)
                await asyncio.sleep(0)
                raise Overload("busy")

    source = Ledger(ProblemStore(lambda problem: None)).source(0, "west")
    objects = KubeObjects(VIRTUAL_SERVICE, ORIGIN, source, Rows(), ObjectDecoder(Turns()))
    raw = virtual_service(prefixes(3000))
    names = [NamespacedName("hostile", f"a{number}") for number in range(20)]
    await objects.receive([ObjectChange(name, raw) for name in (*names, NAME)])
    assert len(order) == 21
    assert order.index("shop") <= 2


class Rows:
    """Records the rows of each batch of edits."""

    def __init__(self) -> None:
        self.batches = list[int]()

    def put(self, edits: Iterable[Any]) -> None:
        self.batches.append(len(list(edits)))


async def test_other_tasks_run_between_objects_of_medium_size() -> None:
    rows = Rows()
    objects = KubeObjects(VIRTUAL_SERVICE, ORIGIN, Ledger(ProblemStore()).source(0, "west"), rows)
    raw = virtual_service(prefixes(1000))
    assert LARGE / 2 < len(raw) < LARGE
    names = [NamespacedName("shop", f"medium-{number}") for number in range(10)]
    changes = [ObjectChange(name, raw.replace(b'"large"', b'"%s"' % name.name.encode())) for name in names]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    await objects.receive(changes)
    others.cancel()
    assert rows.batches == [2] * 5
    assert turns >= 4
