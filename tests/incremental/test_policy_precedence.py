"""Precedence of policies in the resources of a proxy, after successive edits of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from google.protobuf import any_pb2

from pilot.lib.xds_types import CLUSTER, LISTENER
from pilot.mesh.model.proxy import Proxy
from testing.mesh.objects import Plain, make, pod, world
from testing.mesh.world import World, proxy, rows_of

CLIENT = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"})
POD = pod("web-0", "10.1.0.1", labels="{app: web}")
OTHER_POD = pod("web-0", "10.1.0.1", labels="{app: other}")
API = "api.b.svc.cluster.local"
SERVICE = make("Service", "api", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}, {name: tcp, port: 81}]}", "b")
WEB = make(
    "Service", "web", "{clusterIP: 10.96.0.2, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}"
)
DELETED = "deleted"


def pool(connections: int) -> str:
    return f"connectionPool: {{tcp: {{maxConnections: {connections}}}}}"


def at_port(connections: int, number: int = 80) -> str:
    return f"portLevelSettings: [{{port: {{number: {number}}}, {pool(connections)}}}]"


def rule(name: str, policy: str = "", subset: str = "", namespace: str = "a", day: int = 2, more: str = "") -> Plain:
    """Return a DestinationRule for the service. `subset` is the policy of its subset v1."""
    spec = f"host: {API}{', ' + more if more else ''}"
    spec += f", trafficPolicy: {{{policy}}}" if policy else ""
    subset_policy = f", trafficPolicy: {{{subset}}}" if subset != "none" else ""
    spec += f", subsets: [{{name: v1, labels: {{version: v1}}{subset_policy}}}]" if subset else ""
    return make("DestinationRule", name, f"{{{spec}}}", namespace, day)


def deleted(manifest: Plain) -> Plain:
    return manifest | {DELETED: True}


def edit(env: World, manifest: Plain) -> None:
    rows = rows_of([{field: value for field, value in manifest.items() if field != DELETED}])
    env.set(dict.fromkeys(rows) if DELETED in manifest else rows)


def connections(env: World, node_id: str) -> tuple[int | None, ...]:
    """Return the connection limits of port 80, its subset v1, and port 81, or None for a missing cluster."""
    limits: dict[str, int] = {}
    for name, resource in env.resources(node_id)[CLUSTER].items():
        message = cluster_pb2.Cluster()
        any_pb2.Any.FromString(resource.any).Unpack(message)
        limits[name] = (
            message.circuit_breakers.thresholds[0].max_connections.value if message.circuit_breakers.thresholds else 0
        )
    return tuple(limits.get(f"outbound|{at}|{API}") for at in ("80|", "80|v1", "81|"))


def fresh(env: World, client: Proxy = CLIENT) -> tuple[World, str]:
    second_env = World()
    second_env.set(env.rows())
    return second_env, second_env.connect(client)


UNLIMITED = 2**32 - 1
NONE = (UNLIMITED, None, UNLIMITED)
Step = tuple[Plain, tuple[int | None, ...]]
LEVELS: Sequence[Step] = (
    (rule("r", pool(1), "none"), (1, 1, 1)),
    (rule("r", f"{pool(1)}, {at_port(2)}", "none"), (2, 2, 1)),
    (rule("r", f"{pool(1)}, {at_port(2)}", pool(3)), (2, 3, 1)),
    (rule("r", f"{pool(1)}, {at_port(2)}", f"{pool(3)}, {at_port(4)}"), (2, 4, 1)),
    (rule("r", f"{pool(1)}, {at_port(2)}", f"{pool(3)}, {at_port(4, 81)}"), (2, 3, 1)),
    (rule("r", at_port(2, 81), pool(3)), (UNLIMITED, 3, 2)),
    (deleted(rule("r")), NONE),
)
SAME_HOST: Sequence[Step] = (
    (rule("young", pool(1), pool(2)), (1, 2, 1)),
    (rule("old", pool(5), day=1), (5, 2, 5)),
    (rule("old", subset=pool(6), day=1), (1, 6, 1)),
    (rule("old", at_port(7), pool(6), day=1), (7, 6, UNLIMITED)),
    (rule("old", at_port(7), pool(6), day=3), (1, 2, 1)),
    (deleted(rule("young")), (7, 6, UNLIMITED)),
)
NAMESPACES: Sequence[Step] = (
    (rule("root", pool(1), namespace="istio-system"), (1, None, 1)),
    (rule("theirs", pool(2), "none", namespace="b"), (2, 2, 2)),
    (rule("theirs", pool(2), "none", namespace="b", more="exportTo: ['.']"), (1, None, 1)),
    (rule("theirs", pool(2), "none", namespace="b", more="exportTo: [a]"), (2, 2, 2)),
    (rule("own", pool(3)), (3, None, 3)),
    # A rule for other workloads hides the rules of other namespaces as well.
    (rule("own", pool(3), more="workloadSelector: {matchLabels: {app: other}}"), NONE),
    (rule("own", pool(3), more="workloadSelector: {matchLabels: {app: web}}"), (3, None, 3)),
    (OTHER_POD, NONE),
    (POD, (3, None, 3)),
    (deleted(rule("own")), (2, 2, 2)),
    (deleted(rule("theirs", namespace="b")), (1, None, 1)),
    (deleted(rule("root", namespace="istio-system")), NONE),
)


@pytest.mark.parametrize("steps", [LEVELS, SAME_HOST, NAMESPACES], ids=["levels", "rules for one host", "namespaces"])
def test_traffic_policy_precedence(steps: Sequence[Step]) -> None:
    """Port settings win over the whole policy, subsets over the rule, the oldest rule, and the nearest namespace."""
    env = world(SERVICE, POD)
    node_id = env.connect(CLIENT)
    assert connections(env, node_id) == NONE
    for number, (object_, expected) in enumerate(steps):
        edit(env, object_)
        assert connections(env, node_id) == expected, f"step {number}"
        assert connections(*fresh(env)) == expected, f"step {number}, from scratch"


# -- root namespace policies with a selector -------------------------------------------------------------------------------

JWT = "jwtRules: [{issuer: me, jwks: '{\"keys\": []}'}]"
ROOT = "istio-system"


def inbound(env: World, node_id: str) -> bytes:
    return bytes(env.resources(node_id)[LISTENER]["virtualInbound"].any)


def peer(spec: str, namespace: str = ROOT) -> Any:
    return make("PeerAuthentication", "p", f"{{{spec}}}", namespace)


def request(selector: str) -> Any:
    return make("RequestAuthentication", "r", f"{{{selector}{JWT}}}", ROOT)


def test_root_peer_authentication_applies_only_without_a_selector() -> None:
    env = world(WEB, POD)
    node_id = env.connect(CLIENT)
    permissive = inbound(env, node_id)
    edit(env, peer("selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}"))
    assert inbound(env, node_id) == permissive == inbound(*fresh(env))
    edit(env, peer("mtls: {mode: STRICT}"))
    assert inbound(env, node_id) != permissive
    assert inbound(env, node_id) == inbound(*fresh(env))
    edit(env, peer("selector: {}, mtls: {mode: STRICT}"))
    assert inbound(env, node_id) != permissive
    edit(env, peer("selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}"))
    assert inbound(env, node_id) == permissive


def test_root_request_authentication_applies_with_a_selector() -> None:
    env = world(WEB, POD)
    node_id = env.connect(CLIENT)
    steps = (
        (request("selector: {matchLabels: {app: other}}, "), False),
        (request("selector: {matchLabels: {app: web}}, "), True),
        (OTHER_POD, False),
        (request(""), True),
        (POD, True),
        (deleted(request("")), False),
    )
    for number, (object_, expected) in enumerate(steps):
        edit(env, object_)
        assert (b"envoy.filters.http.jwt_authn" in inbound(env, node_id)) is expected, f"step {number}"
        assert inbound(env, node_id) == inbound(*fresh(env)), f"step {number}"
