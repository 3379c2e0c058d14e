"""Services reachable by SNI through gateways in mode AUTO_PASSTHROUGH."""

from __future__ import annotations

from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.listener.v3 import listener_pb2
from google.protobuf import any_pb2

from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER
from testing.mesh.objects import make, world
from testing.mesh.world import World, proxy, rows_of


def service(name: str, namespace: str = "shop", export: str = "") -> dict[str, Any]:
    annotations = f"{{networking.istio.io/exportTo: '{export}'}}" if export else "{}"
    spec = "{clusterIP: 10.96.0.1, selector: {app: x}, ports: [{name: tcp, port: 80}]}"
    return make("Service", name, spec, namespace, annotations=annotations)


def gateway(hosts: str) -> dict[str, Any]:
    port = "{number: 15443, name: tls, protocol: TLS}"
    server = f"{{port: {port}, hosts: [{hosts}], tls: {{mode: AUTO_PASSTHROUGH}}}}"
    return make("Gateway", "cross", f"{{selector: {{istio: eastwest}}, servers: [{server}]}}", "edge")


def sni_clusters(world: World) -> dict[str, set[str]]:
    """Return the server names of filter chains, and the SNI-DNAT clusters and endpoints of the router."""
    resources = world.resources(world.connect(proxy("router", "cross-0", "edge", "10.1.0.9", {"istio": "eastwest"})))
    listeners = [
        listener_pb2.Listener.FromString(any_pb2.Any.FromString(r.any).value) for r in resources[LISTENER].values()
    ]
    chains = [chain for listener in listeners for chain in (*listener.filter_chains, listener.default_filter_chain)]
    names = {"handshakes": {name for chain in chains for name in chain.filter_chain_match.server_names}}
    assert not any(chain.filters and not chain.filter_chain_match.server_names for chain in chains), (
        "a chain matches any server name"
    )
    return names | {
        kind: {n for n in resources[url] if n.startswith("outbound_.")}
        for kind, url in (("clusters", CLUSTER), ("endpoints", ENDPOINT))
    }


def sni_names(*hosts: str) -> set[str]:
    return {f"outbound_.80_._.{host}.svc.cluster.local" for host in hosts}


def test_cve_2021_31921_auto_passthrough_exposes_only_exported_services() -> None:
    exported = (
        service("open"),
        service("private", export="."),
        service("elsewhere", export="far"),
        service("named", export="edge,far"),
    )
    env = world(*exported, gateway('"*.local"'))
    clusters = sni_clusters(env)
    assert clusters["handshakes"] == sni_names("open.shop", "named.shop")
    assert clusters["clusters"] == clusters["endpoints"] == sni_names("open.shop", "named.shop")
    env.set(rows_of([service("open", export="."), service("private")]))
    assert set(map(frozenset, sni_clusters(env).values())) == {frozenset(sni_names("private.shop", "named.shop"))}


def test_cve_2021_31921_gateway_hosts_limit_server_names() -> None:
    clusters = sni_clusters(world(service("open"), service("other", "books"), gateway('"*.shop.svc.cluster.local"')))
    assert clusters["handshakes"] == sni_names("open.shop")


def test_cve_2021_31921_every_chain_requires_a_mesh_alpn() -> None:
    env = world(service("open"), gateway('"*.local"'))
    resources = env.resources(env.connect(proxy("router", "cross-0", "edge", "10.1.0.9", {"istio": "eastwest"})))
    for resource in resources[LISTENER].values():
        for chain in listener_pb2.Listener.FromString(any_pb2.Any.FromString(resource.any).value).filter_chains:
            protocols = set(chain.filter_chain_match.application_protocols)
            assert protocols
            assert all(protocol.startswith("istio") for protocol in protocols)


def test_dns_services_of_the_mesh_are_passed_through() -> None:
    entries = [
        make(
            "ServiceEntry",
            f"{location.lower()}-{resolution.lower()}".replace("_", "-"),
            f"{{hosts: [{resolution.lower()}.{location.lower()[5:]}.local], location: {location}, resolution: {resolution}, "
            f"ports: [{{number: 80, name: tcp, protocol: TCP}}], endpoints: [{{address: 10.9.0.1}}]}}",
            "shop",
        )
        for location in ("MESH_INTERNAL", "MESH_EXTERNAL")
        for resolution in ("STATIC", "DNS")
    ]
    env = world(gateway("'*.local'"), *entries)
    resources = env.resources(env.connect(proxy("router", "cross-0", "edge", "10.1.0.9", {"istio": "eastwest"})))[
        CLUSTER
    ]
    clusters = {}
    for name, resource in resources.items():
        if name.startswith("outbound_."):
            cluster = cluster_pb2.Cluster.FromString(any_pb2.Any.FromString(resource.any).value)
            clusters[name.rpartition("_.")[2]] = cluster.type, len(cluster.load_assignment.endpoints)
    assert clusters == {
        "static.internal.local": (cluster_pb2.Cluster.EDS, 0),
        "dns.internal.local": (cluster_pb2.Cluster.STRICT_DNS, 1),
    }
