"""HTTP/3 listeners of gateways."""

from __future__ import annotations

from testing.mesh.listeners import chains, listeners, network_filters
from testing.mesh.objects import at, endpoint_slice, make
from testing.mesh.world import proxy

EDGE = proxy("router", "edge-0", "edge", "10.1.0.9", {"app": "edge"})
PORTS = "[{name: https, port: 443}, {name: h3, port: 443, protocol: UDP}]"


def test_quic_chains_have_no_network_extensions() -> None:
    tls = "{mode: SIMPLE, credentialName: c}"
    servers = f"[{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: [a.example.com], tls: {tls}}}]"
    result = listeners(
        make("Service", "edge", f"{{clusterIP: 10.96.0.9, selector: {{app: edge}}, ports: {PORTS}}}", "edge"),
        endpoint_slice("edge", at("10.1.0.9"), namespace="edge", ports=PORTS),
        make("Gateway", "gw", f"{{selector: {{app: edge}}, servers: {servers}}}", "edge"),
        make("WasmPlugin", "w", "{selector: {matchLabels: {app: edge}}, type: NETWORK, url: 'oci://x/y:v1'}", "edge"),
        proxy=EDGE,
        PILOT_ENABLE_QUIC_LISTENERS="true",
    )
    filter_counts = {
        name: [len(network_filters(chain)) for chain in chains(listener)] for name, listener in result.items()
    }
    assert filter_counts == {"0.0.0.0_443": [2], "udp_0.0.0.0_443": [1]}
