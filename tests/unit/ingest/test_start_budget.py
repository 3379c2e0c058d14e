"""Objects that would delay the start wait until the control plane is ready, and fail closed until then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any

import msgspec
import pytest

from pilot.config.catalogue import CATALOGUE
from pilot.config.kind import AnyKind
from pilot.config.kinds.istio import AUTHORIZATION_POLICY, ENVOY_FILTER, VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import SERVICE
from pilot.ingest.cluster.kube_source import KubeSource
from pilot.ingest.cluster.start_budget import StartBudget
from pilot.ingest.cluster.waiting_objects import NAME
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.object_check import create_program
from pilot.ingest.object_decoder import ObjectDecoder
from pilot.ingest.problems import ProblemStore
from pilot.lib.workers.job_queue import JobSource
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, server_with_crds, until, watch_options
from testing.mesh.world import World

ORDINARY, MANY = 200e-6, 20_000
"""CPU seconds of an ordinary object, and a large number of objects of a namespace."""


def charge(
    budget: StartBudget,
    kind: AnyKind,
    namespace: str,
    seconds: float,
    count: int,
    is_valid: bool = True,
    problems: int = 0,
) -> int:
    """Charge objects of 1000 bytes until the budget is exceeded or all are charged, and return their number."""
    for number in range(count):
        if budget.is_exceeded(kind, namespace):
            return number
        budget.charge(kind, namespace, seconds, 1000, is_valid, problems)
    return count


def test_ordinary_objects_never_exceed_the_budget() -> None:
    budget = StartBudget()
    for kind in (VIRTUAL_SERVICE, AUTHORIZATION_POLICY):
        assert charge(budget, kind, "shop", ORDINARY, MANY // 2) == MANY // 2


def test_invalid_or_expensive_objects_exceed_the_budget_of_their_namespace_only() -> None:
    budget = StartBudget()
    assert charge(budget, VIRTUAL_SERVICE, "hostile", ORDINARY, MANY, is_valid=False) < 500
    assert charge(budget, VIRTUAL_SERVICE, "costly", 0.004, MANY) < 100
    assert charge(budget, VIRTUAL_SERVICE, "shop", ORDINARY, 1000) == 1000


def test_reports_of_problems_exceed_the_budget_of_valid_objects() -> None:
    budget = StartBudget()
    assert 3 < charge(budget, ENVOY_FILTER, "hostile", ORDINARY, 100, problems=100) < 100


def test_envoy_filters_may_take_longer_unless_they_have_many_problems() -> None:
    budget = StartBudget()
    assert charge(budget, AUTHORIZATION_POLICY, "policies", 0.001, MANY) < 100
    assert charge(budget, ENVOY_FILTER, "filters", 0.001, 1000, problems=1) == 1000
    assert charge(budget, ENVOY_FILTER, "warnings", 0.001, 1000, problems=100) < 20


def test_policies_do_not_wait_because_of_other_kinds() -> None:
    budget = StartBudget()
    charge(budget, VIRTUAL_SERVICE, "hostile", 0.004, MANY)
    assert not budget.is_exceeded(AUTHORIZATION_POLICY, "hostile")
    charge(budget, AUTHORIZATION_POLICY, "hostile", 0.004, MANY)
    assert budget.is_exceeded(AUTHORIZATION_POLICY, "hostile")


def test_many_namespaces_share_a_total() -> None:
    budget = StartBudget()
    first = charge(budget, VIRTUAL_SERVICE, "hostile-0", 0.004, MANY)
    for number in range(1, 20):
        last = charge(budget, VIRTUAL_SERVICE, f"hostile-{number}", 0.004, MANY)
    assert last <= first / 4


def test_trusted_namespaces_and_built_in_kinds_are_not_limited() -> None:
    budget = StartBudget()
    budget.trusted = frozenset({"istio-system"})
    assert charge(budget, VIRTUAL_SERVICE, "istio-system", 0.004, 1000) == 1000
    assert charge(budget, SERVICE, "shop", 0.004, 1000) == 1000


def test_budget_limits_nothing_once_it_is_closed() -> None:
    budget = StartBudget()
    charge(budget, VIRTUAL_SERVICE, "hostile", 0.004, MANY)
    budget.close()
    assert not budget.is_exceeded(VIRTUAL_SERVICE, "hostile")


# -- with an API server ------------------------------------------------------------------------------------------------


class Exhausted(StartBudget):
    """A budget that one namespace has exceeded. Lists leave out its objects of one kind, and deliver the others."""

    def __init__(self, left_out: AnyKind | None = None) -> None:
        super().__init__()
        self._left_out = left_out

    def is_exceeded(self, kind: AnyKind, namespace: str) -> bool:
        return self.applies(kind, namespace) and namespace == "hostile"

    def exceeded_by(self, kind: AnyKind) -> Collection[str]:
        return ["hostile"] if kind is self._left_out and self.applies(kind, "hostile") else ()


class Worker:
    """Checks objects in this process, once `allow` is set."""

    def __init__(self) -> None:
        self.allow = asyncio.Event()
        self._program = create_program()

    async def run(self, caller: JobSource, *parts: bytes) -> bytes:
        await self.allow.wait()
        return self._program.run(b"".join(parts))


def make(kind: str, group: str, namespace: str, name: str, spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": f"{group}.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def virtual_service(namespace: str, name: str, host: str = "a.example.com") -> dict[str, Any]:
    http = [{"route": [{"destination": {"host": host}}]}]
    return make("VirtualService", "networking", namespace, name, {"hosts": [host], "http": http})


def policy(name: str, action: str = "ALLOW") -> dict[str, Any]:
    return make("AuthorizationPolicy", "security", "hostile", name, {"action": action, "rules": [{}]})


class Reader:
    """A source whose namespace `hostile` has exceeded the budget."""

    def __init__(self, server: ApiServer, is_ready: bool = True, left_out: AnyKind | None = None) -> None:
        self._is_ready = is_ready
        self.worker, self.world, self.problems = Worker(), World(), ProblemStore(lambda _: None)
        self._client = client_of(server)
        self._source = KubeSource(
            self._client,
            self,
            Ledger(self.problems),
            0,
            DocumentOrigin(),
            CATALOGUE,
            watch_options(),
            random.Random(1),
            decoder=ObjectDecoder(self.worker),
            budget=Exhausted(left_out),
        )

    def put(self, edits: Iterable[Edit]) -> None:
        if batch := list(edits):
            self.world.commit(batch)

    async def __aenter__(self) -> Reader:
        await self._source.start()
        async with asyncio.timeout(20):
            await self._source.synced()
        if self._is_ready:
            self.read_waiting()
        return self

    def read_waiting(self) -> None:
        self._source.read_waiting()

    async def __aexit__(self, *_: object) -> None:
        await self._source.stop()
        await self._client.close()

    def names(self, kind: AnyKind) -> set[str]:
        return {f"{key.namespace}/{key.name}" for key, _ in kind.table(self.world.mesh).rows()}

    def codes(self) -> set[tuple[str, str]]:
        return {(problem.code, problem.object.name) for problem in self.problems}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


async def test_start_does_not_wait_for_expensive_objects_which_are_decoded_afterwards(server: ApiServer) -> None:
    server.put(virtual_service("shop", "honest"))
    server.put(virtual_service("hostile", "late"))
    server.put(virtual_service("hostile", "invalid", host="*bad*"))
    async with Reader(server) as reader:
        assert reader.names(VIRTUAL_SERVICE) == {"shop/honest"}
        assert ("checked-later", "hostile") in reader.codes()
        reader.worker.allow.set()
        await until(lambda: reader.names(VIRTUAL_SERVICE) == {"shop/honest", "hostile/late"})
        await until(lambda: {name for _, name in reader.codes()} == {"invalid"})
        assert all(problem.path for problem in reader.problems)


async def test_waiting_objects_are_not_read_before_the_control_plane_is_ready(server: ApiServer) -> None:
    server.put(virtual_service("hostile", "late"))
    async with Reader(server, is_ready=False) as reader:
        reader.worker.allow.set()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("waiting objects")]
        assert ("checked-later", "hostile") in reader.codes()
        reader.read_waiting()
        await until(lambda: reader.names(VIRTUAL_SERVICE) == {"hostile/late"})


@pytest.mark.parametrize("left_out", [None, AUTHORIZATION_POLICY], ids=["delivered", "left out"])
async def test_namespace_denies_everything_until_its_policies_are_decoded(
    server: ApiServer, left_out: AnyKind | None
) -> None:
    server.put(policy("deny", "DENY"))
    server.put(virtual_service("hostile", "late"))
    async with Reader(server, left_out=left_out) as reader:
        (closed,) = AUTHORIZATION_POLICY.table(reader.world.mesh).rows()
        assert closed[0] == ("hostile", NAME)
        assert closed[1].spec == msgspec.convert({"action": "DENY", "rules": [{}]}, AUTHORIZATION_POLICY.struct)
        reader.worker.allow.set()
        await until(lambda: reader.names(AUTHORIZATION_POLICY) == {"hostile/deny"})
        await until(lambda: not reader.codes())


async def test_namespace_without_further_policies_is_opened_again(server: ApiServer) -> None:
    async with Reader(server, left_out=AUTHORIZATION_POLICY, is_ready=False) as reader:
        assert reader.names(AUTHORIZATION_POLICY) == {f"hostile/{NAME}"}
        reader.read_waiting()
        await until(lambda: not reader.names(AUTHORIZATION_POLICY))
        assert not reader.codes()


async def test_objects_that_are_not_policies_deny_nothing_while_they_wait(server: ApiServer) -> None:
    server.put(virtual_service("hostile", "late"))
    async with Reader(server) as reader:
        assert not reader.names(AUTHORIZATION_POLICY)


async def test_waiting_objects_that_change_or_are_deleted_have_their_last_version(server: ApiServer) -> None:
    for name in ("changed", "deleted"):
        server.put(virtual_service("hostile", name))
    async with Reader(server) as reader:
        server.put(virtual_service("hostile", "changed", host="b.example.com"))
        server.delete(virtual_service("hostile", "deleted"))
        await until(lambda: reader.names(VIRTUAL_SERVICE) == {"hostile/changed"})
        reader.worker.allow.set()
        await until(lambda: not reader.codes())
        ((_, row),) = VIRTUAL_SERVICE.table(reader.world.mesh).rows()
        assert row.spec.hosts == ("b.example.com",)
