"""Configuration objects over xDS, by group/version/Kind, for clients in the control plane's namespace only."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import grpc

from pilot.mcp.object_types import MESH_CONFIG, parse_object_type
from pilot.mcp.wire import decode_object
from protos.istio import mesh_config_pb2
from testing.clients.ads import Client
from testing.clients.secure_client import SecureClient
from testing.control_planes.secure_plane import Plain, Running, running
from testing.security.tokens import token

TOOL = "sidecar~10.0.0.9~tool-1.{0}~{0}.svc.cluster.local"
VIRTUAL_SERVICE, ENTRY = "networking.istio.io/v1/VirtualService", "networking.istio.io/v1/ServiceEntry"
VARIANTS = ("sotw", "delta")
CONFIG = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop, labels: {team: x}, creationTimestamp: 2026-01-02T03:04:05Z}
spec: {hosts: [web.shop.svc.cluster.local], http: [{timeout: 1.5s, route: [{destination: {host: web, port: {number: 80}}, weight: 100}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.1.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: istio-system}
data: {a: YQ==}
"""


def client(env: Running, namespace: str = "istio-system", variant: str = "delta", **metadata: Any) -> SecureClient:
    credential = token(namespace, "tool")
    return SecureClient(
        env.port,
        env.root,
        token=credential,
        variant=variant,
        node_id=TOOL.format(namespace),
        GENERATOR="api",
        **metadata,
    )


def plain_client(env: Running) -> Client:
    return Client(Plain(env.plane.ports["xDS"].number), node_id=TOOL.format("istio-system"), GENERATOR="api")


def write(folder: pathlib.Path, text: str = CONFIG) -> None:
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "all.yaml").write_text(text)


def objects(response: Any) -> dict[str, Any]:
    """Return the objects in a response, by namespace/name."""
    object_type = parse_object_type(response.type_url)
    assert object_type is not None
    packed = [getattr(item, "resource", item) for item in response.resources]
    decoded = [decode_object(object_type, item.type_url, item.value) for item in packed]
    return {f"{item.namespace}/{item.name}": item.plain for item in decoded}


async def test_objects_have_all_their_fields(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    async with running(tmp_path) as env:
        for variant, version in itertools.product(VARIANTS, ("v1", "v1alpha3")):
            async with client(env, variant=variant) as tool:
                await tool.request(f"networking.istio.io/{version}/VirtualService")
                [(name, virtual_service)] = objects(await tool.receive()).items()
            assert name == "shop/a"
            assert virtual_service["metadata"]["labels"] == {"team": "x"}
            assert virtual_service["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"
            assert virtual_service["spec"] == {
                "hosts": ["web.shop.svc.cluster.local"],
                "http": [
                    {
                        "timeout": "1.500s",
                        "route": [{"destination": {"host": "web", "port": {"number": 80}}, "weight": 100}],
                    }
                ],
            }


async def test_services_are_service_entries_and_other_kinds_are_empty(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    async with running(tmp_path) as env, client(env) as tool:
        await tool.request(ENTRY)
        assert objects(await tool.receive())["shop/synthetic-web"]["spec"] == {
            "hosts": ["web.shop.svc.cluster.local"],
            "addresses": ["10.1.0.1"],
            "exportTo": ["*"],
            "location": "MESH_INTERNAL",
            "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
            "workloadSelector": {"labels": {"app": "web"}},
        }
        for type_url in (
            "core/v1/Secret",
            "core/v1/Service",
            "a.example.com/v1/Thing",
            "networking.istio.io/v7/VirtualService",
        ):
            await tool.request(type_url)
            response = await tool.receive()
            assert (response.type_url, list(response.resources)) == (type_url, [])


async def test_mesh_config_has_its_proto_type(tmp_path: pathlib.Path) -> None:
    providers = "extensionProviders: [{name: z, zipkin: {service: z, port: 1}}]"
    (tmp_path / "mesh.yaml").write_text(f"{{trustDomain: cluster.local, connectTimeout: 3s, {providers}}}")
    async with running(tmp_path, meshConfig=str(tmp_path / "mesh.yaml")) as env, client(env) as tool:
        await tool.request(MESH_CONFIG)
        [item] = (await tool.receive()).resources
    mesh_config = mesh_config_pb2.MeshConfig.FromString(item.resource.value)
    assert (mesh_config.trust_domain, mesh_config.connect_timeout.seconds, mesh_config.root_namespace) == (
        "cluster.local",
        3,
        "istio-system",
    )
    assert "z" in [provider.name for provider in mesh_config.extension_providers]


async def test_change_sends_updates_and_removals(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    async with running(tmp_path) as env, client(env, variant="delta") as delta, client(env, variant="sotw") as sotw:
        await delta.request(VIRTUAL_SERVICE)
        await delta.request(VIRTUAL_SERVICE, nonce=(await delta.receive()).nonce)
        await sotw.request(VIRTUAL_SERVICE)
        await sotw.request(VIRTUAL_SERVICE, nonce=(await sotw.receive()).nonce)
        write(tmp_path, CONFIG.replace("name: a,", "name: b,"))
        env.plane.files[0].rescan()
        env.plane._batch.flush()
        response = await delta.receive()
        assert (list(objects(response)), list(response.removed_resources)) == (["shop/b"], ["shop/a"])
        assert list(objects(await sotw.receive())) == ["shop/b"]


async def test_other_namespaces_get_no_objects(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    async with running(tmp_path) as env:
        for variant in VARIANTS:
            async with client(env, "shop", variant) as tool:
                await tool.request(VIRTUAL_SERVICE)
                assert (await tool.end_status())[0] is grpc.StatusCode.PERMISSION_DENIED
        async with plain_client(env) as tool:
            await tool.request(VIRTUAL_SERVICE)
            assert (await tool.end_status())[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_objects_without_authentication(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    environ = {"ENABLE_XDS_API_GENERATOR_AUTH": "false", "ENABLE_CA_SERVER": "false"}
    async with running(tmp_path, environ, secureGRPCAddr="") as env, plain_client(env) as tool:
        await tool.request(VIRTUAL_SERVICE)
        assert list(objects(await tool.receive())) == ["shop/a"]
