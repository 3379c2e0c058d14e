"""A gateway that answers HTTP/3."""

from __future__ import annotations

from testing.mesh.listeners import chains, listeners, network_filters
from testing.mesh.objects import at, endpoint_slice, make
from testing.mesh.world import proxy

EDGE = proxy("router", "edge-0", "edge", "10.1.0.9", {"app": "edge"})
PORTS = "[{name: https, port: 443}, {name: h3, port: 443, protocol: UDP}]"


def test_network_filters_stand_in_connections_and_not_in_quic() -> None:
    tls = "{mode: SIMPLE, credentialName: c}"
    servers = f"[{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: [a.example.com], tls: {tls}}}]"
    found = listeners(
        make("Service", "edge", f"{{clusterIP: 10.96.0.9, selector: {{app: edge}}, ports: {PORTS}}}", "edge"),
        endpoint_slice("edge", at("10.1.0.9"), namespace="edge", ports=PORTS),
        make("Gateway", "gw", f"{{selector: {{app: edge}}, servers: {servers}}}", "edge"),
        make("WasmPlugin", "w", "{selector: {matchLabels: {app: edge}}, type: NETWORK, url: 'oci://x/y:v1'}", "edge"),
        by=EDGE,
        PILOT_ENABLE_QUIC_LISTENERS="true",
    )
    counts = {name: [len(network_filters(chain)) for chain in chains(listener)] for name, listener in found.items()}
    assert counts == {"0.0.0.0_443": [2], "udp_0.0.0.0_443": [1]}
