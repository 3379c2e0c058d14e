"""Workloads outside of Kubernetes register themselves over their streams, and tell of their health."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from pilot.config.group_kind import GroupKind, plural_of
from pilot.config.kinds.istio import WORKLOAD_ENTRY
from pilot.config.object import ObjectKey
from pilot.controllers.registration_in_cluster import ClusterRegistration, ClusterRegistrationOptions
from pilot.lib.metrics import Metrics
from pilot.lib.xds_types import HEALTH
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.workload_registration import RegistrationError
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.clients.ads import Client
from testing.kube.kube_access import QUICK_WATCH, client_of, until, write_kubeconfig
from testing.mesh.world import rows_of
from tests.unit.bootstrap.test_kube_control_plane import running

GROUP = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "WorkloadGroup",
    "metadata": {"name": "vms", "namespace": "shop"},
    "spec": {
        "metadata": {"labels": {"app": "vm", "tier": "group"}, "annotations": {"note": "x"}},
        "template": {
            "ports": {"http": 80},
            "labels": {"tier": "template", "own": "1"},
            "network": "n0",
            "serviceAccount": "vm",
            "locality": "r/z",
        },
    },
}
NAME = "vms-10.0.0.9-n1"


def vm(ip: str = "10.0.0.9", identity: str = "spiffe://cluster.local/ns/shop/sa/vm", **metadata: Any) -> Proxy:
    said = {
        "AUTO_REGISTER_GROUP": "vms",
        "NETWORK": "n1",
        "LABELS": {"app": "node", "istio-locality": "a.b"},
        **metadata,
    }
    given = {key: value for key, value in said.items() if value}
    return Proxy(
        type=NodeType("sidecar"),
        id="vm.shop",
        ips=(ip,),
        dns_domain="shop",
        namespace="shop",
        metadata=given,
        identity=identity,
    )


class Replica:
    """A control plane's side, on a server whose objects its tables have."""

    def __init__(self, server: ApiServer, name: str = "one", **terms: Any) -> None:
        self.server, self.mesh, self.client = server, Mesh(), client_of(server)
        self.read()
        self.metrics, chosen = Metrics(), ClusterRegistrationOptions(name, **{"grace": 0.02, **terms})
        self.entries = ClusterRegistration(
            self.client, self.mesh, _path, chosen, QUICK_WATCH.backoff, random.Random(1), self.metrics.kubernetes
        )

    def read(self) -> None:
        collections = [self.server.store.collection(_id(plural)) for plural in ("workloadgroups", "workloadentries")]
        objects = [stored.plain for collection in collections for stored in collection.objects.values()]
        self.mesh.commit([(self.mesh.tables[table], key, row) for (table, key), row in rows_of(objects).items()])

    def entry(self, name: str = NAME) -> dict[str, Any] | None:
        return self.server.get("networking.istio.io", "workloadentries", "shop", name)

    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = (self.entry() or {"metadata": {}})["metadata"].get("annotations") or {}
        return found

    def counted(self) -> dict[str, int]:
        """What was counted of registrations."""
        lines = (
            line for line in self.metrics.exposition().decode().splitlines() if line.startswith("auto_registration_")
        )
        words = (line.removeprefix("auto_registration_").split() for line in lines)
        return {name.removesuffix("_total"): int(count) for name, count in words if count != "0"}

    def conditions(self) -> list[tuple[str, str, str]]:
        found = (self.entry() or {}).get("status", {}).get("conditions") or []
        return [(c["type"], c["status"], c.get("message", "")) for c in found]


def _id(plural: str) -> tuple[str, str]:
    return "networking.istio.io", plural


def _path(kind: GroupKind, namespace: str, name: str) -> str:
    return f"/apis/{kind.group}/v1/namespaces/{namespace}/{plural_of(kind)}/{name}"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    for plain in definitions():
        made.put(plain)
    made.put(GROUP)
    await made.start()
    yield made
    await made.stop()


@contextlib.asynccontextmanager
async def replica(server: ApiServer, name: str = "one", **terms: Any) -> AsyncIterator[Replica]:
    it = Replica(server, name, **terms)
    await it.entries.start()
    yield it
    await it.entries.stop()
    await it.client.close()


async def test_an_entry_is_made_of_the_groups_template_and_the_node(server: ApiServer) -> None:
    async with replica(server) as it:
        await it.entries.register(vm(PROXY_CONFIG={"readinessProbe": {"tcpSocket": {"port": 1}}}))
        entry = it.entry()
        assert entry is not None
        assert entry["spec"] == {
            "address": "10.0.0.9",
            "ports": {"http": 80},
            "network": "n1",
            "serviceAccount": "vm",
            "locality": "r/z",
            "labels": {"own": "1", "tier": "group", "app": "node"},
        }
        annotations = it.annotations()
        assert annotations.pop("istio.io/connectedAt").endswith("Z")
        assert annotations == {
            "note": "x",
            "istio.io/autoRegistrationGroup": "vms",
            "istio.io/workloadController": "one",
            "proxy.istio.io/health-checks-enabled": "true",
        }
        (owner,) = entry["metadata"]["ownerReferences"]
        group = server.get("networking.istio.io", "workloadgroups", "shop", "vms")
        assert group is not None
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
            "WorkloadGroup",
            "vms",
            group["metadata"]["uid"],
            True,
        )


@pytest.mark.parametrize(
    ("proxy", "not_found"),
    [
        (vm(AUTO_REGISTER_GROUP="other"), True),
        (vm(identity=""), False),
        (vm(identity="spiffe://cluster.local/ns/shop/sa/other"), False),
        (vm(identity="spiffe://cluster.local/ns/far/sa/vm"), False),
        (vm(AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="none"), True),
    ],
)
async def test_who_may_not_register_is_refused(server: ApiServer, proxy: Proxy, not_found: bool) -> None:
    async with replica(server) as it:
        with pytest.raises(RegistrationError) as caught:
            await it.entries.register(proxy)
        assert caught.value.not_found is not_found
        assert not server.store.collection(_id("workloadentries")).objects


async def test_without_the_check_any_identity_registers(server: ApiServer) -> None:
    async with replica(server, identity_check=False) as it:
        await it.entries.register(vm(identity=""))
        assert it.entry() is not None


async def test_an_entry_goes_some_time_after_the_last_stream(server: ApiServer) -> None:
    async with replica(server) as it:
        await it.entries.register(vm())
        await it.entries.register(vm())
        it.entries.unregister(vm())
        await asyncio.sleep(0)
        assert "istio.io/disconnectedAt" not in it.annotations()
        it.entries.unregister(vm())
        await until(lambda: it.entry() is None)


async def test_the_end_of_a_stream_counts_once_it_is_the_last_one(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replica(server) as it:
        looked = list[Any]()
        monkeypatch.setattr(it.entries._disconnector, "enqueue", lambda keys: looked.extend(keys))
        await it.entries.register(vm())
        await it.entries.register(vm())
        it.entries.unregister(vm())
        assert looked == []
        it.entries.unregister(vm())
        assert [key.name for key in looked] == [NAME]
        with pytest.raises(RegistrationError):
            await it.entries.register(vm(identity=""))
        counted = [
            line
            for line in it.metrics.exposition().decode().splitlines()
            if line.startswith("auto_registration_errors_total")
        ]
        assert counted == ["auto_registration_errors_total 1"]
        assert not it.entries._streams


async def test_what_becomes_of_entries_is_counted_and_nothing_is_kept_of_those_that_went(server: ApiServer) -> None:
    async with replica(server) as it:
        await it.entries.register(vm())
        assert it.counted() == {"success": 1}
        await it.entries.register(vm())
        assert it.counted() == {"success": 1, "updates": 1}
        it.entries.report_health(vm(), True, "")
        await until(lambda: it.conditions() == [("Healthy", "True", "")])
        for _ in range(2):
            it.entries.unregister(vm())
        await until(lambda: it.entry() is None)
        await until(lambda: it.counted() == {"success": 1, "updates": 1, "unregister": 1, "deletes": 1})
        assert (it.entries._health, dict(it.entries._streams)) == ({}, {})


async def test_who_comes_back_in_time_keeps_the_entry(server: ApiServer) -> None:
    async with replica(server, grace=0.2) as it:
        await it.entries.register(vm())
        it.entries.unregister(vm())
        await until(lambda: "istio.io/disconnectedAt" in it.annotations())
        assert "istio.io/connectedAt" not in it.annotations()
        await it.entries.register(vm())
        assert "istio.io/disconnectedAt" not in it.annotations()
        assert "istio.io/connectedAt" in it.annotations()


async def test_who_moves_to_another_replica_keeps_the_entry(server: ApiServer) -> None:
    async with replica(server) as one, replica(server, "two") as two:
        await one.entries.register(vm())
        await two.entries.register(vm())
        one.entries.unregister(vm())
        one.entries.report_health(vm(), False, "too late")
        await two.client.call("GET", _path(GroupKind("networking.istio.io", "WorkloadEntry"), "shop", NAME))
        assert one.annotations()["istio.io/workloadController"] == "two"
        assert "istio.io/disconnectedAt" not in one.annotations()
        assert one.conditions() == []


async def test_health_is_a_condition_and_changes_its_time_only_when_it_changes(server: ApiServer) -> None:
    async with replica(server) as it:
        await it.entries.register(vm())
        it.entries.report_health(vm(), False, "connection refused")
        await until(lambda: it.conditions() == [("Healthy", "False", "connection refused")])
        entry = it.entry()
        assert entry is not None
        since = entry["status"]["conditions"][0]["lastTransitionTime"]
        it.entries.report_health(vm(), False, "still")
        await until(lambda: it.conditions() == [("Healthy", "False", "still")])
        entry = it.entry()
        assert entry is not None
        assert entry["status"]["conditions"][0]["lastTransitionTime"] == since
        it.entries.report_health(vm(), True, "")
        await until(lambda: it.conditions() == [("Healthy", "True", "")])


async def test_an_entry_of_a_user_is_adopted_for_its_health_and_stays(server: ApiServer) -> None:
    spec = {"address": "10.0.0.9", "serviceAccount": "vm"}
    metadata = {"name": "mine", "namespace": "shop"}
    server.put({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": metadata, "spec": spec})
    proxy = vm(AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="mine")
    async with replica(server) as it:
        await it.entries.register(proxy)
        it.entries.report_health(proxy, True, "")
        await until(lambda: "status" in (it.entry("mine") or {}))
        it.entries.unregister(proxy)
        await asyncio.sleep(0.05)
        assert it.entry("mine") is not None


async def test_what_a_replica_that_is_gone_left_behind_is_swept_away(server: ApiServer) -> None:
    async with replica(server, "gone") as gone:
        await gone.entries.register(vm())
    entry = gone.entry()
    assert entry is not None
    entry["metadata"]["annotations"] |= {"istio.io/disconnectedAt": "2025-01-01T00:00:00Z"}
    server.put({**entry, "metadata": {**entry["metadata"], "labels": {"changed": "1"}}})
    async with replica(server, "two", sweep=0.01) as two:
        assert [key.object for key, _ in WORKLOAD_ENTRY.table(two.mesh).rows()] == [ObjectKey("shop", NAME)]
        await until(lambda: two.entry() is None)


async def test_over_a_stream_of_a_whole_control_plane(server: ApiServer, tmp_path: pathlib.Path) -> None:
    path = str(write_kubeconfig(server, tmp_path / "config"))
    environ = {
        "ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY": "false",
        "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD": "10ms",
        "POD_NAME": "istiod-1",
    }
    node = "sidecar~10.0.0.9~vm.shop~shop.svc.cluster.local"
    async with running(environ, kubeconfig=path) as it:
        await until(lambda: it.plane.ready)
        seen = Replica(server)
        async with Client(it, node_id=node, AUTO_REGISTER_GROUP="vms", NETWORK="n1", NAMESPACE="shop") as client:
            await client.request("cds")
            await client.receive()
            assert seen.annotations()["istio.io/workloadController"] == "istiod-1"
            await until(lambda: len(WORKLOAD_ENTRY.table(it.plane.db)) == 1)
            report = discovery_pb2.DeltaDiscoveryRequest(type_url=HEALTH)
            report.error_detail.message = "probe failed"
            await client.call.write(report.SerializeToString())
            await until(lambda: seen.conditions() == [("Healthy", "False", "probe failed")])
        await until(lambda: seen.entry() is None)
        await until(lambda: len(WORKLOAD_ENTRY.table(it.plane.db)) == 0)
        await seen.client.close()
