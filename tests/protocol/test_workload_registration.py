"""Automatic registration of workloads with configuration files, and their health reports."""

from __future__ import annotations

import pathlib

import grpc
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.config.kinds.istio import WORKLOAD_ENTRY
from pilot.lib.xds_types import HEALTH
from pilot.xds.workload_registration import RegistrationError
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


def vm_client(env: Running, account: str = "vm", group: str = "vms", **metadata: str) -> SecureClient:
    proxy_config = {"readinessProbe": {"tcpSocket": {"port": 1}}}
    credential = token("shop", account)
    return SecureClient(
        env.port,
        env.root,
        token=credential,
        variant="sotw",
        node_id=NODE,
        NAMESPACE="shop",
        AUTO_REGISTER_GROUP=group,
        PROXY_CONFIG=proxy_config,
        **metadata,
    )


def entry_count(env: Running) -> int:
    env.plane._batch.flush()
    return len(WORKLOAD_ENTRY.table(env.plane.db))


async def report(client: SecureClient, error: str = "") -> None:
    request = discovery_pb2.DiscoveryRequest(type_url=HEALTH)
    if error:
        request.error_detail.code, request.error_detail.message = 500, error
    await client.call.write(request.SerializeToString())


async def test_workload_is_an_endpoint_while_connected_and_healthy(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "all.yaml").write_text(CONFIG)
    async with running(tmp_path, {"PILOT_WORKLOAD_ENTRY_GRACE_PERIOD": "10ms"}) as env:

        async def endpoints() -> list[str]:
            async with SecureClient(env.port, env.root, token=token("shop", "web"), variant="sotw") as web:
                await web.request("eds", CLUSTER)
                [assignment] = (await web.receive()).resources
            groups = endpoint_pb2.ClusterLoadAssignment.FromString(assignment.value).endpoints
            return [e.endpoint.address.socket_address.address for group in groups for e in group.lb_endpoints]

        async with vm_client(env) as client:
            await client.request("cds")
            await client.receive()
            await env.until(lambda: entry_count(env) == 1)
            assert await endpoints() == []
            for error, expected in (("", ["10.0.0.9"]), ("refused", []), ("", ["10.0.0.9"])):
                await report(client, error)
                previous = next(iter(WORKLOAD_ENTRY.table(env.plane.db).rows()))[1]
                await env.until(
                    lambda previous=previous: (
                        entry_count(env) == 1 and next(iter(WORKLOAD_ENTRY.table(env.plane.db).rows()))[1] != previous
                    )
                )
                assert await endpoints() == expected
        await env.until(lambda: entry_count(env) == 0)
        async with vm_client(env, account="web") as other:
            assert (await other.rejection())[0] is grpc.StatusCode.UNKNOWN
        async with vm_client(env, group="unknown") as other:
            assert (await other.rejection())[0] is grpc.StatusCode.FAILED_PRECONDITION
        assert entry_count(env) == 0


async def test_release_note_60788_tunnel_label_without_an_api_server(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "all.yaml").write_text(CONFIG)
    async with (
        running(tmp_path, {"PILOT_ENABLE_AMBIENT": "true"}) as env,
        vm_client(env, ENABLE_HBONE="true") as client,
    ):
        await client.request("cds")
        await client.receive()
        await env.until(lambda: entry_count(env) == 1)
        ((_, entry),) = WORKLOAD_ENTRY.table(env.plane.db).rows()
    assert entry.labels["networking.istio.io/tunnel"] == "http"


def test_registration_error() -> None:
    for not_found in (False, True):
        error = RegistrationError("WorkloadGroup a/b does not exist", not_found)
        assert (str(error), error.not_found) == ("WorkloadGroup a/b does not exist", not_found)
    assert not RegistrationError("why").not_found
