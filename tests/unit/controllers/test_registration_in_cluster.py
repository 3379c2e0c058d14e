"""Registration and health of workloads outside Kubernetes, with an API server."""

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
from pilot.lib.metrics.metrics import Metrics
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
    metadata_fields = {
        "AUTO_REGISTER_GROUP": "vms",
        "NETWORK": "n1",
        "LABELS": {"app": "node", "istio-locality": "a.b"},
        **metadata,
    }
    present = {key: value for key, value in metadata_fields.items() if value}
    return Proxy(
        type=NodeType("sidecar"),
        id="vm.shop",
        ips=(ip,),
        dns_domain="shop",
        namespace="shop",
        metadata=present,
        identity=identity,
    )


class Replica:
    """A control plane replica, with tables that mirror the server."""

    def __init__(self, server: ApiServer, name: str = "one", **overrides: Any) -> None:
        self.server, self.mesh, self.client = server, Mesh(), client_of(server)
        self.load()
        self.metrics, options = Metrics(), ClusterRegistrationOptions(name, **{"grace": 0.02, **overrides})
        self.entries = ClusterRegistration(
            self.client, self.mesh, _path, options, QUICK_WATCH.backoff, random.Random(1), self.metrics.kubernetes
        )

    def load(self) -> None:
        collections = [self.server.store.collection(_id(plural)) for plural in ("workloadgroups", "workloadentries")]
        objects = [stored.plain for collection in collections for stored in collection.objects.values()]
        self.mesh.commit([(self.mesh.tables[table], key, row) for (table, key), row in rows_of(objects).items()])

    def entry(self, name: str = NAME) -> dict[str, Any] | None:
        return self.server.get("networking.istio.io", "workloadentries", "shop", name)

    def annotations(self) -> dict[str, str]:
        entry_annotations: dict[str, str] = (self.entry() or {"metadata": {}})["metadata"].get("annotations") or {}
        return entry_annotations

    def metric_counts(self) -> dict[str, int]:
        """Return the nonzero registration metrics."""
        lines = (
            line for line in self.metrics.exposition().decode().splitlines() if line.startswith("auto_registration_")
        )
        words = (line.removeprefix("auto_registration_").split() for line in lines)
        return {name.removesuffix("_total"): int(count) for name, count in words if count != "0"}

    def conditions(self) -> list[tuple[str, str, str]]:
        entry_conditions = (self.entry() or {}).get("status", {}).get("conditions") or []
        return [(c["type"], c["status"], c.get("message", "")) for c in entry_conditions]


def _id(plural: str) -> tuple[str, str]:
    return "networking.istio.io", plural


def _path(kind: GroupKind, namespace: str, name: str) -> str:
    return f"/apis/{kind.group}/v1/namespaces/{namespace}/{plural_of(kind)}/{name}"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    for crd in definitions():
        api_server.put(crd)
    api_server.put(GROUP)
    await api_server.start()
    yield api_server
    await api_server.stop()


@contextlib.asynccontextmanager
async def replica(server: ApiServer, name: str = "one", **overrides: Any) -> AsyncIterator[Replica]:
    side = Replica(server, name, **overrides)
    await side.entries.start()
    yield side
    await side.entries.stop()
    await side.client.close()


async def test_entry_combines_template_and_node(server: ApiServer) -> None:
    async with replica(server) as side:
        await side.entries.register(vm(PROXY_CONFIG={"readinessProbe": {"tcpSocket": {"port": 1}}}))
        entry = side.entry()
        assert entry is not None
        assert entry["spec"] == {
            "address": "10.0.0.9",
            "ports": {"http": 80},
            "network": "n1",
            "serviceAccount": "vm",
            "locality": "r/z",
            "labels": {"own": "1", "tier": "group", "app": "node"},
        }
        annotations = side.annotations()
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
    ("proxy", "is_missing"),
    [
        (vm(AUTO_REGISTER_GROUP="other"), True),
        (vm(identity=""), False),
        (vm(identity="spiffe://cluster.local/ns/shop/sa/other"), False),
        (vm(identity="spiffe://cluster.local/ns/far/sa/vm"), False),
        (vm(AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="none"), True),
    ],
)
async def test_unauthorized_registration_is_rejected(server: ApiServer, proxy: Proxy, is_missing: bool) -> None:
    async with replica(server) as side:
        with pytest.raises(RegistrationError) as error:
            await side.entries.register(proxy)
        assert error.value.not_found is is_missing
        assert not server.store.collection(_id("workloadentries")).objects


async def test_any_identity_registers_without_the_check(server: ApiServer) -> None:
    async with replica(server, identity_check=False) as side:
        await side.entries.register(vm(identity=""))
        assert side.entry() is not None


async def test_entry_is_removed_after_the_grace_period(server: ApiServer) -> None:
    async with replica(server) as side:
        await side.entries.register(vm())
        await side.entries.register(vm())
        side.entries.unregister(vm())
        await asyncio.sleep(0)
        assert "istio.io/disconnectedAt" not in side.annotations()
        side.entries.unregister(vm())
        await until(lambda: side.entry() is None)


async def test_only_the_last_stream_unregisters(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica(server) as side:
        enqueued = list[Any]()
        monkeypatch.setattr(side.entries._disconnector, "enqueue", lambda keys: enqueued.extend(keys))
        await side.entries.register(vm())
        await side.entries.register(vm())
        side.entries.unregister(vm())
        assert enqueued == []
        side.entries.unregister(vm())
        assert [key.name for key in enqueued] == [NAME]
        with pytest.raises(RegistrationError):
            await side.entries.register(vm(identity=""))
        metric_lines = [
            line
            for line in side.metrics.exposition().decode().splitlines()
            if line.startswith("auto_registration_errors_total")
        ]
        assert metric_lines == ["auto_registration_errors_total 1"]
        assert not side.entries._streams


async def test_metrics_and_cleanup_of_entries(server: ApiServer) -> None:
    async with replica(server) as side:
        await side.entries.register(vm())
        assert side.metric_counts() == {"success": 1}
        await side.entries.register(vm())
        assert side.metric_counts() == {"success": 1, "updates": 1}
        side.entries.report_health(vm(), True, "")
        await until(lambda: side.conditions() == [("Healthy", "True", "")])
        for _ in range(2):
            side.entries.unregister(vm())
        await until(lambda: side.entry() is None)
        await until(lambda: side.metric_counts() == {"success": 1, "updates": 1, "unregister": 1, "deletes": 1})
        assert (side.entries._health, dict(side.entries._streams)) == ({}, {})


async def test_reconnecting_in_time_keeps_the_entry(server: ApiServer) -> None:
    async with replica(server, grace=0.2) as side:
        await side.entries.register(vm())
        side.entries.unregister(vm())
        await until(lambda: "istio.io/disconnectedAt" in side.annotations())
        assert "istio.io/connectedAt" not in side.annotations()
        await side.entries.register(vm())
        assert "istio.io/disconnectedAt" not in side.annotations()
        assert "istio.io/connectedAt" in side.annotations()


async def test_moving_to_another_replica_keeps_the_entry(server: ApiServer) -> None:
    async with replica(server) as first, replica(server, "two") as second:
        await first.entries.register(vm())
        await second.entries.register(vm())
        first.entries.unregister(vm())
        first.entries.report_health(vm(), False, "too late")
        await second.client.call("GET", _path(GroupKind("networking.istio.io", "WorkloadEntry"), "shop", NAME))
        assert first.annotations()["istio.io/workloadController"] == "two"
        assert "istio.io/disconnectedAt" not in first.annotations()
        assert first.conditions() == []


async def test_health_condition_keeps_its_time_until_it_changes(server: ApiServer) -> None:
    async with replica(server) as side:
        await side.entries.register(vm())
        side.entries.report_health(vm(), False, "connection refused")
        await until(lambda: side.conditions() == [("Healthy", "False", "connection refused")])
        entry = side.entry()
        assert entry is not None
        since = entry["status"]["conditions"][0]["lastTransitionTime"]
        side.entries.report_health(vm(), False, "still")
        await until(lambda: side.conditions() == [("Healthy", "False", "still")])
        entry = side.entry()
        assert entry is not None
        assert entry["status"]["conditions"][0]["lastTransitionTime"] == since
        side.entries.report_health(vm(), True, "")
        await until(lambda: side.conditions() == [("Healthy", "True", "")])


async def test_user_entry_receives_health_and_stays(server: ApiServer) -> None:
    spec = {"address": "10.0.0.9", "serviceAccount": "vm"}
    metadata = {"name": "mine", "namespace": "shop"}
    server.put({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": metadata, "spec": spec})
    proxy = vm(AUTO_REGISTER_GROUP="", WORKLOAD_ENTRY="mine")
    async with replica(server) as side:
        await side.entries.register(proxy)
        side.entries.report_health(proxy, True, "")
        await until(lambda: "status" in (side.entry("mine") or {}))
        side.entries.unregister(proxy)
        await asyncio.sleep(0.05)
        assert side.entry("mine") is not None


async def test_entries_of_a_stopped_replica_are_swept(server: ApiServer) -> None:
    async with replica(server, "gone") as stopped:
        await stopped.entries.register(vm())
    entry = stopped.entry()
    assert entry is not None
    entry["metadata"]["annotations"] |= {"istio.io/disconnectedAt": "2025-01-01T00:00:00Z"}
    server.put({**entry, "metadata": {**entry["metadata"], "labels": {"changed": "1"}}})
    async with replica(server, "two", sweep=0.01) as second:
        assert [key.object for key, _ in WORKLOAD_ENTRY.table(second.mesh).rows()] == [ObjectKey("shop", NAME)]
        await until(lambda: second.entry() is None)


async def test_registration_over_a_control_plane_stream(server: ApiServer, tmp_path: pathlib.Path) -> None:
    path = str(write_kubeconfig(server, tmp_path / "config"))
    environ = {
        "ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY": "false",
        "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD": "10ms",
        "POD_NAME": "istiod-1",
    }
    node = "sidecar~10.0.0.9~vm.shop~shop.svc.cluster.local"
    async with running(environ, kubeconfig=path) as side:
        await until(lambda: side.plane.ready)
        observer = Replica(server)
        async with Client(side, node_id=node, AUTO_REGISTER_GROUP="vms", NETWORK="n1", NAMESPACE="shop") as client:
            await client.request("cds")
            await client.receive()
            assert observer.annotations()["istio.io/workloadController"] == "istiod-1"
            await until(lambda: len(WORKLOAD_ENTRY.table(side.plane.db)) == 1)
            report = discovery_pb2.DeltaDiscoveryRequest(type_url=HEALTH)
            report.error_detail.message = "probe failed"
            await client.call.write(report.SerializeToString())
            await until(lambda: observer.conditions() == [("Healthy", "False", "probe failed")])
        await until(lambda: observer.entry() is None)
        await until(lambda: len(WORKLOAD_ENTRY.table(side.plane.db)) == 0)
        await observer.client.close()


@pytest.mark.parametrize(
    ("environ", "metadata", "expected"),
    [
        ({"PILOT_ENABLE_AMBIENT": "true"}, {"ENABLE_HBONE": "true"}, "http"),
        ({"PILOT_ENABLE_AMBIENT": "true"}, {"ENABLE_HBONE": True}, "http"),
        ({"PILOT_ENABLE_AMBIENT": "true"}, {}, None),
        (
            {"PILOT_ENABLE_AMBIENT": "true", "PILOT_ENABLE_SIDECAR_LISTENING_HBONE": "false"},
            {"ENABLE_HBONE": "true"},
            None,
        ),
        ({}, {"ENABLE_HBONE": "true"}, None),
    ],
)
async def test_release_note_60788_tunnel_label_on_the_entry_of_a_registered_stream(
    server: ApiServer, tmp_path: pathlib.Path, environ: dict[str, str], metadata: dict[str, Any], expected: str | None
) -> None:
    path = str(write_kubeconfig(server, tmp_path / "config"))
    node = "sidecar~10.0.0.9~vm.shop~shop.svc.cluster.local"
    vm_metadata = {"AUTO_REGISTER_GROUP": "vms", "NETWORK": "n1", "NAMESPACE": "shop", **metadata}
    async with running({"ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY": "false", **environ}, kubeconfig=path) as side:
        await until(lambda: side.plane.ready)
        async with Client(side, node_id=node, **vm_metadata) as client:
            await client.request("cds")
            await client.receive()
            entry = server.get("networking.istio.io", "workloadentries", "shop", NAME)
    assert entry is not None
    labels = [entry["metadata"]["labels"], entry["spec"]["labels"]]
    assert [one.get("networking.istio.io/tunnel") for one in labels] == [expected, expected]
