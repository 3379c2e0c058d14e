"""Registration of workloads without an API server: rows of the process that their proxies are connected to."""

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
from pilot.lib.metrics.metrics import Metrics
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
FILE_ENTRY = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "WorkloadEntry",
    "metadata": {"name": "own", "namespace": "shop"},
    "spec": {"address": "10.0.0.9", "serviceAccount": "vm"},
}
KEY = RegistryKey("Kubernetes", "shop", "vms-10.0.0.9")
HEALTH_CHECK = {"PROXY_CONFIG": {"readinessProbe": {"tcpSocket": {"port": 1}}}}


def vm(
    identity: str = "spiffe://cluster.local/ns/shop/sa/vm",
    locality: Locality = Locality(),
    **metadata: Any,
) -> Proxy:
    fields = {"AUTO_REGISTER_GROUP": "vms", "LABELS": {"app": "node", "istio-locality": "a.b"}, **metadata}
    fields = {key: value for key, value in fields.items() if value}
    return Proxy(
        type=NodeType("sidecar"),
        id="vm.shop",
        ips=("10.0.0.9",),
        dns_domain="shop",
        namespace="shop",
        metadata=fields,
        identity=identity,
        locality=locality,
    )


class Harness:
    """Tables of a process with a group and an entry from files, and their registration."""

    def __init__(self, **overrides: Any) -> None:
        self.mesh, self.clock, self.metrics = Mesh(), VirtualClock(), Metrics()
        self.problems = ProblemStore(lambda _: None)
        self.mesh.commit(
            [(self.mesh.tables[table], key, row) for (table, key), row in rows_of([GROUP, FILE_ENTRY]).items()]
        )
        self.commits: list[Commit] = []
        batch = Batch(self.mesh, self.clock, parse_duration("10ms"), parse_duration("1s"), self.commits.append)
        part = Ledger(self.problems).source(0, "registered workloads")
        options = InMemoryRegistrationOptions(**{"grace": 0.01, **overrides})
        self.entries = InMemoryRegistration(self.mesh, batch, part, DocumentOrigin(), options, self.metrics.kubernetes)

    def row(self) -> Object[Any] | None:
        self.clock.advance(1)
        return WORKLOAD_ENTRY.table(self.mesh).peek(KEY)

    def has_metric(self, name: str) -> bool:
        return f"auto_registration_{name}_total 1" in self.metrics.exposition().decode().splitlines()


@contextlib.asynccontextmanager
async def run_registration(**overrides: Any) -> AsyncIterator[Harness]:
    harness = Harness(**overrides)
    await harness.entries.start()
    yield harness
    await harness.entries.stop()


async def test_entry_combines_template_and_node() -> None:
    async with run_registration() as harness:
        await harness.entries.register(vm(NETWORK="", locality=Locality("a", "b", "c")))
        await until(lambda: harness.row() is not None)
        row = harness.row()
        assert row is not None
        assert (row.spec.address, row.spec.ports, row.spec.network, row.spec.locality) == (
            "10.0.0.9",
            {"http": 80},
            "n0",
            "a/b/c",
        )
        assert row.labels == {"own": "1", "tier": "group", "app": "node"}
        assert row.annotations["istio.io/autoRegistrationGroup"] == "vms"
        assert harness.has_metric("success")


async def test_entry_is_removed_after_the_grace_period() -> None:
    async with run_registration() as harness:
        await harness.entries.register(vm())
        await harness.entries.register(vm())
        await until(lambda: harness.row() is not None)
        harness.entries.unregister(vm())
        assert harness.row() is not None
        harness.entries.unregister(vm())
        harness.entries.unregister(vm())  # a rejected stream
        await until(lambda: harness.row() is None)
        assert harness.has_metric("deletes")
        assert harness.has_metric("unregister")
        assert dict(harness.entries._streams) == {}


async def test_reconnecting_in_time_keeps_the_entry() -> None:
    async with run_registration(grace=60.0) as harness:
        await harness.entries.register(vm())
        harness.entries.unregister(vm())
        await harness.entries.register(vm())
        await until(lambda: harness.row() is not None)
        assert harness.entries._expiring == {}
        assert harness.has_metric("updates")


async def test_health_checked_workload_is_used_only_while_healthy() -> None:
    async with run_registration() as harness:
        proxy = vm(**HEALTH_CHECK)
        await harness.entries.register(proxy)
        await until(lambda: harness.row() is not None)
        assert entry_workload(harness.mesh, KEY) is None
        for healthy in (True, False, True):
            harness.entries.report_health(proxy, healthy, "" if healthy else "refused")
            await until(
                lambda healthy=healthy: (
                    harness.row() is not None and (entry_workload(harness.mesh, KEY) is not None) is healthy
                )
            )


async def test_file_entry_stays_unchanged() -> None:
    async with run_registration() as harness:
        proxy = vm(AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="own")
        await harness.entries.register(proxy)
        harness.entries.report_health(proxy, False, "")
        harness.entries.unregister(proxy)
        harness.clock.advance(1)
        assert harness.commits == []


@pytest.mark.parametrize(
    ("proxy", "not_found"),
    [
        (vm(AUTO_REGISTER_GROUP="others"), True),
        (vm(AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="missing"), True),
        (vm(identity=""), False),
        (vm(identity="spiffe://cluster.local/ns/bank/sa/vm"), False),
        (vm(identity="spiffe://cluster.local/ns/shop/sa/other"), False),
        (vm(identity="spiffe://cluster.local/ns/shop/sa/other", AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="own"), False),
    ],
)
async def test_unauthorized_registration_is_rejected(proxy: Proxy, not_found: bool) -> None:
    async with run_registration() as harness:
        with pytest.raises(RegistrationError) as error:
            await harness.entries.register(proxy)
        assert error.value.not_found is not_found
        harness.entries.unregister(proxy)
        assert harness.row() is None
        assert harness.has_metric("errors")
