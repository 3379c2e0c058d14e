"""Mutual TLS modes and trust domains."""

from __future__ import annotations

import pytest

from pilot.mesh.security.mtls import mtls_mode, namespace_mtls
from pilot.mesh.tables.trust import trust_domains
from testing.mesh.world import World

WEB = frozenset({("app", "web"), ("version", "v1")})


def policy(namespace: str, name: str, spec: str = "", created: int = 1) -> str:
    return f"""---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: "2025-01-01T00:00:{created:02}Z"}}
spec: {{{spec}}}
"""


def world(*policies: str, mesh: str = "") -> World:
    harness = World(mesh)
    harness.apply("".join(policies))
    return harness


STRICT, DISABLE, UNSET = "mtls: {mode: STRICT}", "mtls: {mode: DISABLE}", "mtls: {mode: UNSET}"
MESH = policy("istio-system", "mesh", STRICT)


@pytest.mark.parametrize(
    ("policies", "clients", "workload"),
    [
        ([], "UNKNOWN", "PERMISSIVE"),
        ([MESH], "STRICT", "STRICT"),
        ([policy("istio-system", "mesh", UNSET)], "PERMISSIVE", "PERMISSIVE"),
        ([MESH, policy("ns", "own", DISABLE)], "DISABLE", "DISABLE"),
        ([MESH, policy("ns", "own", UNSET)], "STRICT", "STRICT"),
        ([MESH, policy("ns", "own")], "STRICT", "STRICT"),
        ([policy("ns", "own", UNSET)], "PERMISSIVE", "PERMISSIVE"),
        ([policy("ns", "young", STRICT, 2), policy("ns", "old", DISABLE, 1)], "DISABLE", "DISABLE"),
        ([policy("other", "own", DISABLE)], "UNKNOWN", "PERMISSIVE"),
        ([MESH, policy("ns", "w", "selector: {matchLabels: {app: web}}, mtls: {mode: DISABLE}")], "STRICT", "DISABLE"),
        ([MESH, policy("ns", "w", "selector: {matchLabels: {app: web}}, mtls: {mode: UNSET}")], "STRICT", "STRICT"),
        ([MESH, policy("ns", "w", "selector: {matchLabels: {app: api}}, mtls: {mode: DISABLE}")], "STRICT", "STRICT"),
        (
            [policy("istio-system", "w", "selector: {matchLabels: {app: web}}, mtls: {mode: DISABLE}")],
            "UNKNOWN",
            "PERMISSIVE",
        ),
    ],
)
def test_mtls_modes(policies: list[str], clients: str, workload: str) -> None:
    mesh = world(*policies).mesh
    assert namespace_mtls(mesh, "ns") == clients
    assert mtls_mode(mesh, "ns", WEB, 80) == workload


def test_port_level_mode_overrides_the_workload_mode() -> None:
    spec = "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: DISABLE}, 8081: {mode: UNSET}}"
    mesh = world(policy("ns", "w", spec)).mesh
    assert [mtls_mode(mesh, "ns", WEB, port) for port in (8080, 8081, 8082)] == ["DISABLE", "STRICT", "STRICT"]


def test_trust_domains() -> None:
    assert trust_domains(World().mesh) == ("cluster.local",)
    mesh = "trustDomain: td\ntrustDomainAliases: [old, td, older]\ncaCertificates: [{pem: x, trustDomains: [partner, old]}]"
    assert trust_domains(World(mesh).mesh) == ("td", "old", "older", "partner")
    assert trust_domains(World(mesh, {"PILOT_SKIP_VALIDATE_TRUST_DOMAIN": "true"}).mesh) == ()
