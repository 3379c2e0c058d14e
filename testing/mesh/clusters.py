"""One proxy's clusters as proto JSON, in a small mesh with one service and the objects of a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import any_pb2, json_format

from pilot.lib.xds_types import CLUSTER
from pilot.mesh.model.proxy import Proxy
from testing.mesh.world import World, proxy

HOST = "api.shop.svc.cluster.local"
CLIENT = proxy("sidecar", "web-0", "shop", "10.0.0.1", {"app": "web"})
ROUTER = proxy("router", "ingress-0", "edge", "10.0.0.2", {"app": "ingress"})
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop, creationTimestamp: "2025-01-01T00:00:01Z"}
spec:
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1]
  selector: {app: api}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: grpc, port: 90}, {name: other, port: 70}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: v1
kind: Pod
metadata: {name: api-0, namespace: shop, labels: {app: api, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: api, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-0, namespace: shop, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
endpoints: [{addresses: [10.1.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: api-0, namespace: shop}}]
ports: [{name: http, port: 8080}, {name: grpc, port: 90}, {name: other, port: 70}]
"""


def rule(policy: str = "", subsets: str = "", host: str = HOST, more: str = "", namespace: str = "shop") -> str:
    """Return a DestinationRule. `policy` and `subsets` are flow YAML."""
    parts = [f"host: '{host}'", policy and f"trafficPolicy: {policy}", subsets and f"subsets: {subsets}", more]
    return f"""
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: the-rule, namespace: {namespace}}}
spec: {{{", ".join(filter(None, parts))}}}
"""


def entry(spec: str, annotations: str = "{}") -> str:
    """Return a ServiceEntry in the client's namespace."""
    return f"""
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: entry, namespace: shop, annotations: {annotations}}}
spec: {{{spec}}}
"""


def clusters(
    objects: str = "", mesh: str = "", proxy: Proxy = CLIENT, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return every cluster of a proxy, by name."""
    world = World(mesh, environ)
    world.apply(SERVICE + objects)
    resources = world.resources(world.connect(proxy))[CLUSTER]
    assert not world.failures
    return {name: json_format.MessageToDict(any_pb2.Any.FromString(r.any)) for name, r in resources.items()}


def cluster(objects: str = "", port: int = 80, subset: str = "", host: str = HOST, **more: Any) -> dict[str, Any]:
    """Return one outbound cluster."""
    config: dict[str, Any] = clusters(objects, **more)[f"outbound|{port}|{subset}|{host}"]
    return config


def http_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the HTTP protocol options of a cluster, or {}."""
    options = dict(
        config.get("typedExtensionProtocolOptions", {}).get(
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions", {}
        )
    )
    options.pop("@type", None)
    return options


def tls_context(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the TLS context of a cluster's only transport socket, or else of the one for mesh peers; {} if there is
    none.
    """
    socket = config.get("transportSocket") or next(
        (m["transportSocket"] for m in config.get("transportSocketMatches", ())), {}
    )
    return dict(socket.get("typedConfig", {}))
