"""Gateways of mode AUTO_PASSTHROUGH: what of the mesh can be reached through them by the name in a handshake."""

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


def reached(made: World) -> dict[str, set[str]]:
    """The names that a handshake may ask for, and the clusters and endpoints of the router that go by such names."""
    have = made.resources(made.connect(proxy("router", "cross-0", "edge", "10.1.0.9", {"istio": "eastwest"})))
    listeners = [listener_pb2.Listener.FromString(any_pb2.Any.FromString(r.any).value) for r in have[LISTENER].values()]
    chains = [chain for found in listeners for chain in (*found.filter_chains, found.default_filter_chain)]
    found = {"handshakes": {name for chain in chains for name in chain.filter_chain_match.server_names}}
    assert not any(chain.filters and not chain.filter_chain_match.server_names for chain in chains), (
        "a chain takes any name"
    )
    return found | {
        kind: {n for n in have[url] if n.startswith("outbound_.")}
        for kind, url in (("clusters", CLUSTER), ("endpoints", ENDPOINT))
    }


def names(*hosts: str) -> set[str]:
    return {f"outbound_.80_._.{host}.svc.cluster.local" for host in hosts}


def test_cve_2021_31921_auto_passthrough_shows_only_what_is_exported() -> None:
    exported = (
        service("open"),
        service("private", export="."),
        service("elsewhere", export="far"),
        service("named", export="edge,far"),
    )
    made = world(*exported, gateway('"*.local"'))
    found = reached(made)
    assert found["handshakes"] == names("open.shop", "named.shop")
    assert found["clusters"] == found["endpoints"] == names("open.shop", "named.shop")
    made.set(rows_of([service("open", export="."), service("private")]))
    assert set(map(frozenset, reached(made).values())) == {frozenset(names("private.shop", "named.shop"))}


def test_cve_2021_31921_hosts_of_the_gateway_limit_what_a_handshake_can_ask_for() -> None:
    found = reached(world(service("open"), service("other", "books"), gateway('"*.shop.svc.cluster.local"')))
    assert found["handshakes"] == names("open.shop")


def test_cve_2021_31921_every_chain_wants_a_protocol_of_the_mesh() -> None:
    made = world(service("open"), gateway('"*.local"'))
    have = made.resources(made.connect(proxy("router", "cross-0", "edge", "10.1.0.9", {"istio": "eastwest"})))
    for resource in have[LISTENER].values():
        for chain in listener_pb2.Listener.FromString(any_pb2.Any.FromString(resource.any).value).filter_chains:
            protocols = set(chain.filter_chain_match.application_protocols)
            assert protocols
            assert all(protocol.startswith("istio") for protocol in protocols)


def test_names_of_the_mesh_that_are_looked_up_are_passed_on_with_their_endpoints_and_those_outside_are_not() -> None:
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
    made = world(gateway("'*.local'"), *entries)
    have = made.resources(made.connect(proxy("router", "cross-0", "edge", "10.1.0.9", {"istio": "eastwest"})))[CLUSTER]
    found = {}
    for name, resource in have.items():
        if name.startswith("outbound_."):
            cluster = cluster_pb2.Cluster.FromString(any_pb2.Any.FromString(resource.any).value)
            found[name.rpartition("_.")[2]] = cluster.type, len(cluster.load_assignment.endpoints)
    assert found == {
        "static.internal.local": (cluster_pb2.Cluster.EDS, 0),
        "dns.internal.local": (cluster_pb2.Cluster.STRICT_DNS, 1),
    }
