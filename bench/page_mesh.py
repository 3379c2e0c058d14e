"""A generated mesh for looking at the dashboard: namespaces of services that call each other, and their proxies.

    python bench/page_mesh.py FOLDER --services 501 --proxies 251 --address 127.0.0.1:15010

It writes the objects, and with --address it connects proxies, which acknowledge every response until interrupted, except
for routes with the Lua script of `bad_script`. The last `--silent` proxies do not answer.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import datetime
import pathlib
import sys
from typing import Any, NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from envoy.service.discovery.v3 import discovery_pb2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench.static_mesh import ADS
from testing.clients.ads import EOF
from testing.clients.fleet import CDS, LDS, RDS, envoy_node
from testing.mesh.world import proxy

Plain = dict[str, Any]
NAMESPACES = [
    "shop",
    "payments",
    "catalog",
    "accounts",
    "search",
    "shipping",
    "inventory",
    "reviews",
    "pricing",
    "support",
    "media",
    "notify",
    "fraud",
    "billing",
    "reports",
    "loyalty",
    "content",
    "identity",
    "logistics",
    "returns",
    "partners",
    "data",
    "ads",
    "messaging",
    "internal",
]
SERVICES = [
    "web",
    "checkout",
    "cart",
    "ledger",
    "orders",
    "users",
    "stock",
    "quotes",
    "rates",
    "tax",
    "mail",
    "audit",
    "events",
    "cache",
    "images",
    "feed",
    "rules",
    "queue",
    "store",
    "index",
    "sync",
]
PER_NAMESPACE = 20
CHILDREN = 3


class Place(NamedTuple):
    """A service of the mesh. `caller` is the service that may call it, or "" for the first of a namespace."""

    namespace: str
    name: str
    caller: str
    address: str

    @property
    def host(self) -> str:
        return f"{self.name}.{self.namespace}.svc.cluster.local"


def places(count: int) -> list[Place]:
    """Return the services of a mesh. The first one of each namespace is called from other namespaces or the gateway."""
    result: list[Place] = []
    for number in range(count):
        namespace, index = divmod(number, PER_NAMESPACE)
        space = NAMESPACES[namespace % len(NAMESPACES)] + (f"-{namespace}" if namespace >= len(NAMESPACES) else "")
        caller = SERVICES[(index - 1) // CHILDREN] if index else ""
        result.append(Place(space, SERVICES[index], caller, f"10.96.{number // 200}.{number % 200 + 10}"))
    return result


def make_object(kind: str, name: str, namespace: str, spec: Plain, group: str = "networking.istio.io/v1") -> Plain:
    metadata: Plain = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}


def pod_address(number: int, replica: int) -> str:
    return f"10.{128 + replica}.{number // 200}.{number % 200 + 1}"


def service_objects(place: Place, number: int, replicas: int) -> list[Plain]:
    """Return the Service of a place with its Pods, its EndpointSlice and its policies."""
    port = {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}
    spec = {"clusterIP": place.address, "clusterIPs": [place.address], "selector": {"app": place.name}, "ports": [port]}
    objects = [make_object("Service", place.name, place.namespace, spec, "v1")]
    endpoints = []
    for replica in range(replicas):
        name, ip = f"{place.name}-{replica}", pod_address(number, replica)
        labels = {"app": place.name, "version": f"v{replica % 2 + 1}", "security.istio.io/tlsMode": "istio"}
        pod = make_object(
            "Pod",
            name,
            place.namespace,
            {"serviceAccountName": place.name, "containers": [{"name": "app", "image": "app:1"}]},
            "v1",
        )
        pod["metadata"]["labels"] = labels
        ready = {"type": "Ready", "status": "True"}
        pod["status"] = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready]}
        objects.append(pod)
        target = {"kind": "Pod", "name": name, "namespace": place.namespace}
        endpoints.append({"addresses": [ip], "conditions": {"ready": True}, "targetRef": target})
    objects.append(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{place.name}-0",
                "namespace": place.namespace,
                "labels": {"kubernetes.io/service-name": place.name},
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }
    )
    selector = {"matchLabels": {"app": place.name}}
    if place.caller:
        principal = f"cluster.local/ns/{place.namespace}/sa/{place.caller}"
        rule: Plain = {"from": [{"source": {"principals": [principal]}}]}
        if place.name in ("ledger", "users"):
            rule["to"] = [{"operation": {"methods": ["GET", "POST"]}}]
        objects.append(
            make_object(
                "AuthorizationPolicy",
                f"{place.name}-callers",
                place.namespace,
                {"selector": selector, "rules": [rule]},
                "security.istio.io/v1",
            )
        )
    return objects


def namespace_objects(namespace: str, number: int, upstream: str) -> list[Plain]:
    """Return the objects of a namespace. Services in `upstream` and the gateway may call its first service."""
    callers = [f"cluster.local/ns/{upstream}/sa/{name}" for name in ("checkout", "cart")] if upstream else []
    callers.append("cluster.local/ns/ingress/sa/gateway")
    rules = [{"from": [{"source": {"principals": callers}}]}]
    security = "security.istio.io/v1"
    objects = [
        make_object("Namespace", namespace, "", {}, "v1"),
        make_object(
            "AuthorizationPolicy",
            "web-callers",
            namespace,
            {"selector": {"matchLabels": {"app": "web"}}, "rules": rules},
            security,
        ),
    ]
    if number % 4 != 3:
        objects.append(make_object("PeerAuthentication", "default", namespace, {"mtls": {"mode": "STRICT"}}, security))
    return objects


def edge_objects(namespaces: list[str]) -> list[Plain]:
    """Return the gateways, the routes from them, and the certificates of the gateways."""
    servers = [
        {
            "port": {"number": 443, "name": "https", "protocol": "HTTPS"},
            "hosts": ["*.example.com"],
            "tls": {"mode": "SIMPLE", "credentialName": "edge-certificate"},
        },
        {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*.example.com"]},
    ]
    objects = [
        make_object("Namespace", "ingress", "", {}, "v1"),
        make_object("Gateway", "edge", "ingress", {"selector": {"istio": "gateway"}, "servers": servers}),
        secret("edge-certificate", "ingress", "www.example.com", 4.2),
        secret("partner-certificate", "ingress", "partner.example.com", 41.0),
        secret("old-certificate", "ingress", "old.example.com", -2.0),
    ]
    for namespace in namespaces[:8]:
        route = {"route": [{"destination": {"host": f"web.{namespace}.svc.cluster.local"}}]}
        spec = {"hosts": [f"{namespace}.example.com"], "gateways": ["ingress/edge"], "http": [route]}
        objects.append(make_object("VirtualService", "edge", namespace, spec))
    return objects


def secret(name: str, namespace: str, host: str, days: float) -> Plain:
    """Return a Secret with a certificate that ends in some days."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=60))
        .not_valid_after(now + datetime.timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    data = {"tls.crt": base64.b64encode(pem).decode(), "tls.key": base64.b64encode(private).decode()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}


def canary(namespace: str, name: str, subset: str, weight: int = 20) -> list[Plain]:
    """Return a route that splits requests between versions. The last one is `subset`, which gets `weight` percent."""
    host = f"{name}.{namespace}.svc.cluster.local"
    to = [
        {"destination": {"host": host, "subset": s}, "weight": w} for s, w in (("v1", 100 - weight), (subset, weight))
    ]
    subsets = [{"name": v, "labels": {"version": v}} for v in ("v1", "v2")]
    return [
        make_object("VirtualService", name, namespace, {"hosts": [host], "http": [{"route": to}]}),
        make_object("DestinationRule", name, namespace, {"host": host, "subsets": subsets}),
    ]


BAD_SCRIPT = "function envoy_on_response(handle) handle:headers():add('x-served-by' 'quotes') end"
# What Envoy says of BAD_SCRIPT: the arguments lack a comma.
BAD_SCRIPT_ERROR = (
    "script load error: [string \"function envoy_on_response(handle) handle:head...\"]:1: ')' expected near ''quotes''"
)


def bad_script(name: str, place: Place) -> Plain:
    """Return an EnvoyFilter that adds a script with a syntax error to every route of a service's proxies."""
    lua = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute",
        "source_code": {"inline_string": BAD_SCRIPT},
    }
    patch = {
        "applyTo": "VIRTUAL_HOST",
        "match": {"context": "SIDECAR_OUTBOUND"},
        "patch": {"operation": "MERGE", "value": {"typed_per_filter_config": {"envoy.filters.http.lua": lua}}},
    }
    spec = {"workloadSelector": {"labels": {"app": place.name}}, "configPatches": [patch]}
    return make_object("EnvoyFilter", name, place.namespace, spec, "networking.istio.io/v1alpha3")


def write_mesh(folder: pathlib.Path, count: int, replicas: int = 2) -> list[Place]:
    """Write the objects of a mesh of `count` services to a folder, and return the services."""
    mesh = places(count)
    folder.mkdir(parents=True, exist_ok=True)
    namespaces = list(dict.fromkeys(place.namespace for place in mesh))
    for number, namespace in enumerate(namespaces):
        upstream = namespaces[(number - 1) // 3] if number else ""
        objects = namespace_objects(namespace, number, upstream)
        for index, place in enumerate(mesh):
            if place.namespace == namespace:
                objects += service_objects(place, index, replicas)
        write(folder / f"{namespace}.yaml", objects)
    write(folder / "ingress.yaml", edge_objects(namespaces))
    write(folder / "routes.yaml", canary(namespaces[0], mesh[min(2, len(mesh) - 1)].name, "v2"))
    return mesh


def write(file: pathlib.Path, objects: list[Plain]) -> None:
    import yaml

    temporary = file.parent / f".{file.name}.new"
    temporary.write_text("---\n".join(yaml.safe_dump(o, sort_keys=False) for o in objects))
    temporary.replace(file)


# -- proxies -----------------------------------------------------------------------------------------------------------


def nodes(mesh: list[Place], count: int) -> list[Any]:
    """Return the nodes of a gateway and of `count` - 1 sidecars."""
    result = [envoy_node(proxy("router", "gateway-0", "ingress", "10.90.0.1", labels={"istio": "gateway"}))]
    for number in range(count - 1):
        replica, index = divmod(number, len(mesh))
        place, ip = mesh[index], pod_address(index, replica % 2)
        name = f"{place.name}-{replica}"
        labels = {"app": place.name, "version": f"v{replica % 2 + 1}"}
        result.append(envoy_node(proxy("sidecar", name, place.namespace, ip, labels=labels)))
    return result


def route_names(node: Any) -> tuple[str, ...]:
    """Return the routes that a proxy's listeners use."""
    return ("http.80", "https.443.https.edge.ingress") if node.id.startswith("router~") else ("80",)


async def follow(channel: Any, node: Any, silent: bool) -> None:
    """Keep a stream open until cancelled, and reconnect when it ends.

    Every response is acknowledged, except for routes with BAD_SCRIPT. A silent proxy answers twice, then no more.
    """
    request = discovery_pb2.DiscoveryRequest
    while True:
        call = channel.stream_stream(ADS, request.SerializeToString, discovery_pb2.DiscoveryResponse.FromString)()
        with contextlib.suppress(grpc.aio.AioRpcError):
            for type_url, names in ((CDS, ()), (LDS, ()), (RDS, route_names(node))):
                await call.write(request(node=node, type_url=type_url, resource_names=names))
            responses = 0
            while (response := await call.read()) is not EOF:
                responses += 1
                names = route_names(node) if response.type_url == RDS else ()
                reply = request(type_url=response.type_url, response_nonce=response.nonce, resource_names=names)
                if any(BAD_SCRIPT.encode() in resource.value for resource in response.resources):
                    reply.error_detail.code = 13
                    reply.error_detail.message = BAD_SCRIPT_ERROR
                else:
                    reply.version_info = response.version_info
                if not silent or responses < 3:
                    await call.write(reply)
        await asyncio.sleep(1)


async def connect(address: str, node: Any, silent: bool) -> None:
    """Connect a proxy until cancelled."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        await follow(channel, node, silent)


async def run_proxies(address: str, mesh: list[Place], count: int, silent: int) -> None:
    """Keep the streams of some proxies open until cancelled. The last `silent` ones do not answer."""
    async with asyncio.TaskGroup() as group:
        for number, node in enumerate(nodes(mesh, count)):
            group.create_task(connect(address, node, number >= count - silent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="folder for the objects")
    parser.add_argument("--services", type=int, default=51, help="number of services (default 51)")
    parser.add_argument("--proxies", type=int, default=26, help="number of proxies (default 26)")
    parser.add_argument("--silent", type=int, default=0, help="number of proxies that do not answer")
    parser.add_argument("--address", help="address of the control plane's plaintext port")
    parser.add_argument("--keep", action="store_true", help="do not write the objects")
    options = parser.parse_args()
    mesh = places(options.services) if options.keep else write_mesh(options.folder, options.services)
    if options.address:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run_proxies(options.address, mesh, options.proxies, options.silent))


if __name__ == "__main__":
    main()
