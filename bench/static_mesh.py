"""Generated meshes of ServiceEntries, and simple proxies, for benchmarks of the control plane's ports."""

from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Any, NamedTuple

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2

from testing.clients.ads import EOF
from testing.clients.fleet import envoy_node
from testing.mesh.world import proxy

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
TYPES = tuple(f"type.googleapis.com/envoy.config.{name}" for name in ("cluster.v3.Cluster", "listener.v3.Listener"))
Plain = dict[str, Any]


class Shape(NamedTuple):
    """The size of a mesh. With `scoped`, a Sidecar in each namespace restricts its proxies to that namespace."""

    namespaces: int
    services: int
    endpoints: int
    proxies: int
    scoped: bool = False


SHAPES = {"S0": Shape(2, 5, 2, 5), "S2": Shape(20, 50, 2, 500), "S3": Shape(50, 20, 2, 1000, scoped=True)}


def write_mesh(folder: pathlib.Path, shape: Shape) -> None:
    for n in range(shape.namespaces):
        objects: list[Plain] = []
        if shape.scoped:
            objects.append(make_object("Sidecar", "default", f"ns-{n}", {"egress": [{"hosts": ["./*"]}]}))
        for s in range(shape.services):
            endpoints = [{"address": f"10.{128 + e}.{n}.{s + 1}"} for e in range(shape.endpoints)]
            ports = [{"name": "http", "number": 80, "protocol": "HTTP"}]
            spec = {"hosts": [f"s{s}.ns-{n}.example"], "resolution": "STATIC", "ports": ports, "endpoints": endpoints}
            objects.append(make_object("ServiceEntry", f"s{s}", f"ns-{n}", spec))
        (folder / f"ns-{n}.yaml").write_text("\n---\n".join(map(json.dumps, objects)))


def make_object(kind: str, name: str, namespace: str, spec: Plain) -> Plain:
    """Return an object."""
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def edit(folder: pathlib.Path, number: int, shape: Shape) -> None:
    """Change the connection limit of one service."""
    spec = {"host": "s0.ns-0.example", "trafficPolicy": {"connectionPool": {"tcp": {"maxConnections": 10 + number}}}}
    temporary = folder.parent / "rule.new"
    temporary.write_text(json.dumps(make_object("DestinationRule", "rule", "ns-0", spec)))
    temporary.replace(folder / "rule.yaml")


async def run_proxy(address: str, number: int, shape: Shape) -> None:
    """Keep the stream of one proxy open, and acknowledge every response, until cancelled."""
    namespace = f"ns-{number % shape.namespaces}"
    node = envoy_node(proxy("sidecar", f"web-{number}", namespace, f"10.2.{number // 250}.{number % 250 + 1}"))
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        await follow(channel, node)


async def follow(channel: Any, node: base_pb2.Node) -> None:
    """Acknowledge every response for a node, and reconnect when a stream ends, until cancelled."""
    request = discovery_pb2.DiscoveryRequest
    while True:
        call = channel.stream_stream(ADS, request.SerializeToString, discovery_pb2.DiscoveryResponse.FromString)()
        with contextlib.suppress(grpc.RpcError):
            for url in TYPES:
                await call.write(request(node=node, type_url=url))
            while (response := await call.read()) is not EOF:
                await call.write(
                    request(
                        type_url=response.type_url, response_nonce=response.nonce, version_info=response.version_info
                    )
                )
