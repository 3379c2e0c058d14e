"""Which policy wins, in what a proxy is sent, one edit after the other on a mesh that is already built."""

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
GONE = "gone"


def pool(connections: int) -> str:
    return f"connectionPool: {{tcp: {{maxConnections: {connections}}}}}"


def at_port(connections: int, number: int = 80) -> str:
    return f"portLevelSettings: [{{port: {{number: {number}}}, {pool(connections)}}}]"


def rule(name: str, policy: str = "", subset: str = "", namespace: str = "a", day: int = 2, more: str = "") -> Plain:
    """A DestinationRule of the service; `subset` is the policy of its subset v1."""
    spec = f"host: {API}{', ' + more if more else ''}"
    spec += f", trafficPolicy: {{{policy}}}" if policy else ""
    of_subset = f", trafficPolicy: {{{subset}}}" if subset != "none" else ""
    spec += f", subsets: [{{name: v1, labels: {{version: v1}}{of_subset}}}]" if subset else ""
    return make("DestinationRule", name, f"{{{spec}}}", namespace, day)


def gone(o: Plain) -> Plain:
    return o | {GONE: True}


def edit(made: World, o: Plain) -> None:
    rows = rows_of([{field: value for field, value in o.items() if field != GONE}])
    made.set(dict.fromkeys(rows) if GONE in o else rows)


def connections(made: World, node_id: str) -> tuple[int | None, ...]:
    """The connections that the service's clusters allow: port 80, its subset v1, port 81; None for a cluster that is not there."""
    found: dict[str, int] = {}
    for name, resource in made.resources(node_id)[CLUSTER].items():
        message = cluster_pb2.Cluster()
        any_pb2.Any.FromString(resource.any).Unpack(message)
        found[name] = (
            message.circuit_breakers.thresholds[0].max_connections.value if message.circuit_breakers.thresholds else 0
        )
    return tuple(found.get(f"outbound|{at}|{API}") for at in ("80|", "80|v1", "81|"))


def fresh(made: World, client: Proxy = CLIENT) -> tuple[World, str]:
    again = World()
    again.set(made.rows())
    return again, again.connect(client)


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
    (gone(rule("r")), NONE),
)
OF_ONE_HOST: Sequence[Step] = (
    (rule("young", pool(1), pool(2)), (1, 2, 1)),
    (rule("old", pool(5), day=1), (5, 2, 5)),
    (rule("old", subset=pool(6), day=1), (1, 6, 1)),
    (rule("old", at_port(7), pool(6), day=1), (7, 6, UNLIMITED)),
    (rule("old", at_port(7), pool(6), day=3), (1, 2, 1)),
    (gone(rule("young")), (7, 6, UNLIMITED)),
)
OF_NAMESPACES: Sequence[Step] = (
    (rule("root", pool(1), namespace="istio-system"), (1, None, 1)),
    (rule("theirs", pool(2), "none", namespace="b"), (2, 2, 2)),
    (rule("theirs", pool(2), "none", namespace="b", more="exportTo: ['.']"), (1, None, 1)),
    (rule("theirs", pool(2), "none", namespace="b", more="exportTo: [a]"), (2, 2, 2)),
    (rule("own", pool(3)), (3, None, 3)),
    (
        rule("own", pool(3), more="workloadSelector: {matchLabels: {app: other}}"),
        NONE,
    ),  # it hides those of other namespaces all the same
    (rule("own", pool(3), more="workloadSelector: {matchLabels: {app: web}}"), (3, None, 3)),
    (OTHER_POD, NONE),
    (POD, (3, None, 3)),
    (gone(rule("own")), (2, 2, 2)),
    (gone(rule("theirs", namespace="b")), (1, None, 1)),
    (gone(rule("root", namespace="istio-system")), NONE),
)


@pytest.mark.parametrize(
    "steps", [LEVELS, OF_ONE_HOST, OF_NAMESPACES], ids=["levels", "rules of one host", "namespaces"]
)
def test_which_traffic_policy_wins(steps: Sequence[Step]) -> None:
    """Levels: a port's over the whole policy, a subset's over the rule's. Of one host: the oldest rule's. Then the nearest namespace's."""
    made = world(SERVICE, POD)
    node_id = made.connect(CLIENT)
    assert connections(made, node_id) == NONE
    for number, (object_, expected) in enumerate(steps):
        edit(made, object_)
        assert connections(made, node_id) == expected, f"step {number}"
        assert connections(*fresh(made)) == expected, f"step {number}, from scratch"


# -- policies of the root namespace that select ----------------------------------------------------------------------------

JWT = "jwtRules: [{issuer: me, jwks: '{\"keys\": []}'}]"
ROOT = "istio-system"


def inbound(made: World, node_id: str) -> bytes:
    return bytes(made.resources(node_id)[LISTENER]["virtualInbound"].any)


def peer(spec: str, namespace: str = ROOT) -> Any:
    return make("PeerAuthentication", "p", f"{{{spec}}}", namespace)


def request(selector: str) -> Any:
    return make("RequestAuthentication", "r", f"{{{selector}{JWT}}}", ROOT)


def test_a_root_policy_of_peers_with_a_selector_has_no_effect_and_one_without_has() -> None:
    made = world(WEB, POD)
    node_id = made.connect(CLIENT)
    open_to_all = inbound(made, node_id)
    edit(made, peer("selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}"))
    assert inbound(made, node_id) == open_to_all == inbound(*fresh(made))
    edit(made, peer("mtls: {mode: STRICT}"))
    assert inbound(made, node_id) != open_to_all
    assert inbound(made, node_id) == inbound(*fresh(made))
    edit(made, peer("selector: {}, mtls: {mode: STRICT}"))
    assert inbound(made, node_id) != open_to_all
    edit(made, peer("selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}"))
    assert inbound(made, node_id) == open_to_all


def test_a_root_policy_of_requests_with_a_selector_is_for_those_workloads_of_every_namespace() -> None:
    made = world(WEB, POD)
    node_id = made.connect(CLIENT)
    steps = (
        (request("selector: {matchLabels: {app: other}}, "), False),
        (request("selector: {matchLabels: {app: web}}, "), True),
        (OTHER_POD, False),
        (request(""), True),
        (POD, True),
        (gone(request("")), False),
    )
    for number, (object_, expected) in enumerate(steps):
        edit(made, object_)
        assert (b"envoy.filters.http.jwt_authn" in inbound(made, node_id)) is expected, f"step {number}"
        assert inbound(made, node_id) == inbound(*fresh(made)), f"step {number}"
