"""Parts of the listeners of gateways that are stored once."""

from __future__ import annotations

from pilot.lib.xds_types import LISTENER
from testing.mesh.objects import make, world
from testing.mesh.world import proxy


def test_listeners_share_the_settings_of_http() -> None:
    servers = ", ".join(
        f"{{port: {{number: {n}, name: http-{n}, protocol: HTTP}}, hosts: ['*']}}" for n in (8081, 8082)
    )
    mesh = world(make("Gateway", "gw", f"{{selector: {{app: edge}}, servers: [{servers}]}}"))
    edge = mesh.connect(proxy("router", "edge-0", "a", "10.1.0.9", {"app": "edge"}))
    first, second = mesh.resources(edge)[LISTENER].values()
    shared = [piece for piece in first.pieces if any(piece is other for other in second.pieces)]
    assert len(b"".join(shared)) > first.size / 2
    assert first != second
