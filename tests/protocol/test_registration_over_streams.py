"""A workload registers itself over its stream where configuration is files, and its reports of health decide whether it has calls."""

from __future__ import annotations

import pathlib

import grpc
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.config.kinds.istio import WORKLOAD_ENTRY
from pilot.lib.xds_types import HEALTH
from testing.clients.secure_client import SecureClient
from testing.control_planes.secure_plane import Running, running
from testing.security.tokens import token

NODE = "sidecar~10.0.0.9~vm-1.shop~shop.svc.cluster.local"
CLUSTER = "outbound|80||vm.example.com"
CONFIG = """
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: vms, namespace: shop}
spec: {template: {labels: {app: vm}, serviceAccount: vm, ports: {http: 8080}}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: vm, namespace: shop}
spec:
  hosts: [vm.example.com]
  resolution: STATIC
  location: MESH_INTERNAL
  ports: [{number: 80, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: vm}}
"""


def vm(it: Running, account: str = "vm", group: str = "vms") -> SecureClient:
    checked = {"readinessProbe": {"tcpSocket": {"port": 1}}}
    made = token("shop", account)
    return SecureClient(
        it.port,
        it.root,
        token=made,
        variant="sotw",
        node_id=NODE,
        NAMESPACE="shop",
        AUTO_REGISTER_GROUP=group,
        PROXY_CONFIG=checked,
    )


async def report(client: SecureClient, error: str = "") -> None:
    request = discovery_pb2.DiscoveryRequest(type_url=HEALTH)
    if error:
        request.error_detail.code, request.error_detail.message = 500, error
    await client.call.write(request.SerializeToString())


async def test_a_workload_is_an_endpoint_while_it_is_connected_and_healthy(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "all.yaml").write_text(CONFIG)
    async with running(tmp_path, {"PILOT_WORKLOAD_ENTRY_GRACE_PERIOD": "10ms"}) as it:

        def entries() -> int:
            it.plane._batch.flush()
            return len(WORKLOAD_ENTRY.table(it.plane.db))

        async def endpoints() -> list[str]:
            async with SecureClient(it.port, it.root, token=token("shop", "web"), variant="sotw") as web:
                await web.ask("eds", CLUSTER)
                [found] = (await web.take()).resources
            groups = endpoint_pb2.ClusterLoadAssignment.FromString(found.value).endpoints
            return [e.endpoint.address.socket_address.address for group in groups for e in group.lb_endpoints]

        async with vm(it) as client:
            await client.ask("cds")
            await client.take()
            await it.until(lambda: entries() == 1)
            assert await endpoints() == []
            for error, expected in (("", ["10.0.0.9"]), ("refused", []), ("", ["10.0.0.9"])):
                await report(client, error)
                before = next(iter(WORKLOAD_ENTRY.table(it.plane.db).rows()))[1]
                await it.until(
                    lambda before=before: (
                        entries() == 1 and next(iter(WORKLOAD_ENTRY.table(it.plane.db).rows()))[1] != before
                    )
                )
                assert await endpoints() == expected
        await it.until(lambda: entries() == 0)
        async with vm(it, account="web") as other:
            assert (await other.refused())[0] is grpc.StatusCode.UNKNOWN
        async with vm(it, group="others") as other:
            assert (await other.refused())[0] is grpc.StatusCode.FAILED_PRECONDITION
        assert entries() == 0
