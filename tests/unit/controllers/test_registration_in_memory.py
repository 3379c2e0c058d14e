"""Without an API server, workloads that register themselves are rows of the process that their proxies are connected to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.config.kinds.istio import WORKLOAD_ENTRY
from pilot.config.object import Object, RegistryKey
from pilot.controllers.registration_in_memory import InMemoryRegistration, InMemoryRegistrationOptions
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.lib.metrics import Metrics
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.registry.workload_entries import entry_workload
from pilot.mesh.tables.database import Mesh
from pilot.xds.workload_registration import RegistrationError
from testing.kube.kube_access import until
from testing.mesh.clock import VirtualClock
from testing.mesh.world import rows_of

GROUP = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "WorkloadGroup",
    "metadata": {"name": "vms", "namespace": "shop"},
    "spec": {
        "metadata": {"labels": {"app": "vm", "tier": "group"}},
        "template": {
            "ports": {"http": 80},
            "labels": {"tier": "template", "own": "1"},
            "network": "n0",
            "serviceAccount": "vm",
            "locality": "r/z",
        },
    },
}
WRITTEN = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "WorkloadEntry",
    "metadata": {"name": "own", "namespace": "shop"},
    "spec": {"address": "10.0.0.9", "serviceAccount": "vm"},
}
KEY = RegistryKey("Kubernetes", "shop", "vms-10.0.0.9")
CHECKED = {"PROXY_CONFIG": {"readinessProbe": {"tcpSocket": {"port": 1}}}}


def vm(
    identity: str = "spiffe://cluster.local/ns/shop/sa/vm",
    locality: Locality = Locality(),
    **metadata: Any,
) -> Proxy:
    given = {"AUTO_REGISTER_GROUP": "vms", "LABELS": {"app": "node", "istio-locality": "a.b"}, **metadata}
    given = {key: value for key, value in given.items() if value}
    return Proxy(
        type=NodeType("sidecar"),
        id="vm.shop",
        ips=("10.0.0.9",),
        dns_domain="shop",
        namespace="shop",
        metadata=given,
        identity=identity,
        locality=locality,
    )


class Plane:
    """The tables of a process with a group and an entry of files, and what registers workloads in it."""

    def __init__(self, **terms: Any) -> None:
        self.mesh, self.clock, self.metrics = Mesh(), VirtualClock(), Metrics()
        self.problems = ProblemStore(lambda _: None)
        self.mesh.commit(
            [(self.mesh.tables[table], key, row) for (table, key), row in rows_of([GROUP, WRITTEN]).items()]
        )
        self.commits: list[Commit] = []
        batch = Batch(self.mesh, self.clock, parse_duration("10ms"), parse_duration("1s"), self.commits.append)
        part = Ledger(self.problems).source(0, "registered workloads")
        chosen = InMemoryRegistrationOptions(**{"grace": 0.01, **terms})
        self.entries = InMemoryRegistration(self.mesh, batch, part, DocumentOrigin(), chosen, self.metrics.kubernetes)

    def row(self) -> Object[Any] | None:
        self.clock.advance(1)
        return WORKLOAD_ENTRY.table(self.mesh).peek(KEY)

    def counted(self, what: str) -> bool:
        return f"auto_registration_{what}_total 1" in self.metrics.exposition().decode().splitlines()


@contextlib.asynccontextmanager
async def plane(**terms: Any) -> AsyncIterator[Plane]:
    made = Plane(**terms)
    await made.entries.start()
    yield made
    await made.entries.stop()


async def test_an_entry_is_made_of_the_groups_template_and_the_node() -> None:
    async with plane() as it:
        await it.entries.register(vm(NETWORK="", locality=Locality("a", "b", "c")))
        await until(lambda: it.row() is not None)
        row = it.row()
        assert row is not None
        assert (row.spec.address, row.spec.ports, row.spec.network, row.spec.locality) == (
            "10.0.0.9",
            {"http": 80},
            "n0",
            "a/b/c",
        )
        assert row.labels == {"own": "1", "tier": "group", "app": "node"}
        assert row.annotations["istio.io/autoRegistrationGroup"] == "vms"
        assert it.counted("success")


async def test_an_entry_goes_when_the_last_stream_has_been_gone_for_the_grace() -> None:
    async with plane() as it:
        await it.entries.register(vm())
        await it.entries.register(vm())
        await until(lambda: it.row() is not None)
        it.entries.unregister(vm())
        assert it.row() is not None
        it.entries.unregister(vm())
        it.entries.unregister(vm())  # of a stream that was refused
        await until(lambda: it.row() is None)
        assert it.counted("deletes")
        assert it.counted("unregister")
        assert dict(it.entries._streams) == {}


async def test_who_comes_back_within_the_grace_keeps_its_entry() -> None:
    async with plane(grace=60.0) as it:
        await it.entries.register(vm())
        it.entries.unregister(vm())
        await it.entries.register(vm())
        await until(lambda: it.row() is not None)
        assert it.entries._expiring == {}
        assert it.counted("updates")


async def test_a_workload_whose_health_is_checked_counts_while_it_is_healthy() -> None:
    async with plane() as it:
        proxy = vm(**CHECKED)
        await it.entries.register(proxy)
        await until(lambda: it.row() is not None)
        assert entry_workload(it.mesh, KEY) is None
        for healthy in (True, False, True):
            it.entries.report_health(proxy, healthy, "" if healthy else "refused")
            await until(lambda: it.row() is not None and (entry_workload(it.mesh, KEY) is not None) is healthy)  # noqa: B023


async def test_an_entry_of_files_is_taken_as_it_is() -> None:
    async with plane() as it:
        proxy = vm(AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="own")
        await it.entries.register(proxy)
        it.entries.report_health(proxy, False, "")
        it.entries.unregister(proxy)
        it.clock.advance(1)
        assert it.commits == []


@pytest.mark.parametrize(
    ("proxy", "misplaced"),
    [
        (vm(AUTO_REGISTER_GROUP="others"), True),
        (vm(AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="missing"), True),
        (vm(identity=""), False),
        (vm(identity="spiffe://cluster.local/ns/bank/sa/vm"), False),
        (vm(identity="spiffe://cluster.local/ns/shop/sa/other"), False),
        (vm(identity="spiffe://cluster.local/ns/shop/sa/other", AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="own"), False),
    ],
)
async def test_nobody_registers_what_it_is_not(proxy: Proxy, misplaced: bool) -> None:
    async with plane() as it:
        with pytest.raises(RegistrationError) as caught:
            await it.entries.register(proxy)
        assert caught.value.not_found is misplaced
        it.entries.unregister(proxy)
        assert it.row() is None
        assert it.counted("errors")
