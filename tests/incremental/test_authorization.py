"""AuthorizationPolicies and key sets that change under a mesh that is built: what a proxy has, what a fresh mesh has, and what it costs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import yaml

from pilot.config.security.request_authentication import JwksKey
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.xds_types import CLUSTER, LISTENER, ROUTE
from pilot.mesh.model.proxy import Proxy
from testing.mesh.objects import Plain, make, pod, world
from testing.mesh.world import World, proxy, rows_of

PORTS = "[{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}]"
WEB = make("Service", "web", f"{{clusterIP: 10.96.0.2, selector: {{app: web}}, ports: {PORTS}}}")
POD, OTHER = (pod("web-0", "10.1.0.1", labels=f"{{app: {app}}}") for app in ("web", "other"))
JUDGE = make("Service", "judge", "{clusterIP: 10.96.0.9, ports: [{name: grpc, port: 9000}]}", "court")
PROVIDER = (
    "extensionProviders: [{name: judge, envoyExtAuthzGrpc: {service: judge.court.svc.cluster.local, port: 9000}}]"
)
CLIENT = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"})
RULE = "rules: [{from: [{source: {principals: [cluster.local/ns/b/sa/c]}}]}]"
URI = "https://issuer.example.com/keys"


def policy(name: str, spec: str, namespace: str = "a", annotations: str = "{}") -> Plain:
    return make("AuthorizationPolicy", name, f"{{{spec}}}", namespace, annotations=annotations)


def mesh(text: str) -> list[Any]:
    found, problems = decode_mesh_config([yaml.safe_load(f"{{{text}}}")])
    assert found is not None, problems
    return [("MeshConfig", "mesh", found)]


def guard(made: World, node_id: str) -> bytes:
    """The listener that has everything that guards a workload."""
    return bytes(made.resources(node_id)[LISTENER]["virtualInbound"].any)


def fresh(made: World, client: Proxy = CLIENT) -> bytes:
    again = World()
    again.set(made.rows())
    again.commit([("MeshConfig", "mesh", made.mesh.mesh.peek("mesh"))])
    again.mesh.commit([(again.mesh.jwks, key, row) for key, row in made.mesh.jwks.rows()])
    return guard(again, again.connect(client))


STEPS: list[tuple[str, Any]] = [
    ("a policy of the namespace", policy("p", RULE)),
    ("another rule", policy("p", f"action: DENY, {RULE}")),
    ("of other workloads", policy("p", f"selector: {{matchLabels: {{app: other}}}}, {RULE}")),
    ("the workload is one of them", OTHER),
    ("and is not any more", POD),
    ("tried only", policy("p", RULE, annotations="{istio.io/dry-run: 'true'}")),
    ("of the mesh", policy("root", f"action: DENY, {RULE}", "istio-system")),
    ("an alias of the trust domain", mesh("trustDomainAliases: [old]")),
    ("another root namespace", mesh("rootNamespace: b")),
    ("of that namespace", policy("root", RULE, "b")),
    ("an authorizer that is not there", policy("p", "action: CUSTOM, provider: {name: judge}, rules: [{}]")),
    ("the provider", mesh(PROVIDER)),
    ("its service", JUDGE),
    ("another port", mesh(PROVIDER.replace("9000", "9001"))),
    ("keys that are not known", make("RequestAuthentication", "r", f"{{jwtRules: [{{issuer: i, jwksUri: '{URI}'}}]}}")),
    (
        "the keys",
        [("JsonWebKeySet", JwksKey("", URI), json.dumps({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}))],
    ),
]


def test_each_read_of_what_guards_a_workload_is_tracked() -> None:
    made = world(WEB, POD)
    node_id = made.connect(CLIENT)
    seen = [guard(made, node_id)]
    for what, edit in STEPS:
        if isinstance(edit, list):
            made.mesh.commit([(made.mesh.tables[table], key, row) for table, key, row in edit])
        else:
            made.apply_objects(edit)
        seen.append(guard(made, node_id))
        assert seen[-1] == fresh(made), what
        assert seen[-1] != seen[-2], what
    for what, edit in reversed(STEPS):
        if isinstance(edit, dict) and edit["kind"] != "Pod":
            made.set(dict.fromkeys(rows_of([edit])))
            assert guard(made, node_id) == fresh(made), what
    assert not made.failures


def test_a_policy_changes_listeners_alone() -> None:
    made = world(WEB, POD)
    node_id = made.connect(CLIENT)
    before = made.resources(node_id)
    made.apply_objects(policy("p", RULE))
    after = made.resources(node_id)
    assert {url for url in before if before[url] != after[url]} == {LISTENER}
    assert before[CLUSTER]
    assert before[ROUTE]
    assert [name for name, resource in after[LISTENER].items() if resource != before[LISTENER][name]] == [
        "virtualInbound"
    ]


def test_an_edit_that_says_the_same_changes_nothing() -> None:
    made = world(WEB, POD, policy("p", RULE))
    node_id = made.connect(CLIENT)
    before = guard(made, node_id)
    again = policy("p", RULE) | {"metadata": {**policy("p", RULE)["metadata"], "resourceVersion": "7"}}
    assert cost(made, [node_id], again) == Counter()
    assert guard(made, node_id) == before


def cost(made: World, nodes: list[str], edit: Plain) -> Counter[str]:
    """How often each derivation runs for an edit, beyond what reading all proxies runs without one."""
    idle, ran = Counter[str](), Counter[str]()
    for counter, objects in ((idle, ()), (ran, (edit,))):
        made.mesh.on_run = lambda node, counter=counter: counter.update((str(node.fn),))
        made.apply_objects(*objects)
        for node in nodes:
            guard(made, node)
    return ran - idle


# -- cost ------------------------------------------------------------------------------------------------------------------


def many(count: int, same_namespace: bool) -> tuple[World, list[str]]:
    """Workloads, each with a service and a policy of its own: in one namespace, or in one each."""
    made = World()
    nodes = []
    for n in range(count):
        namespace = "a" if same_namespace else f"n{n}"
        spec = f"{{clusterIP: 10.96.1.{n}, selector: {{app: app-{n}}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}"
        made.apply_objects(
            make("Service", f"s{n}", spec, namespace),
            pod(f"p{n}-0", f"10.1.1.{n}", namespace, labels=f"{{app: app-{n}}}"),
            numbered(n, namespace, RULE),
        )
        nodes.append(made.connect(proxy("sidecar", f"p{n}-0", namespace, f"10.1.1.{n}", {"app": f"app-{n}"})))
    return made, nodes


def numbered(n: int, namespace: str, rule: str) -> Plain:
    return policy(f"z{n}", f"selector: {{matchLabels: {{app: app-{n}}}}}, {rule}", namespace)


@pytest.mark.parametrize("same_namespace", [False, True], ids=["in namespaces of their own", "in one namespace"])
def test_an_edit_of_a_policy_costs_the_same_with_10_and_60_others(same_namespace: bool) -> None:
    costs: list[Counter[str]] = []
    for count in (10, 60):
        made, nodes = many(count, same_namespace)
        before = [guard(made, node) for node in nodes]
        costs.append(cost(made, nodes, numbered(7, "a" if same_namespace else "n7", RULE.replace("sa/c", "sa/d"))))
        after = [guard(made, node) for node in nodes]
        assert [n for n in range(count) if before[n] != after[n]] == [7]
    assert costs[0] == costs[1]
    assert costs[0]["compiled_policy"] == 2, "for requests and for connections"
    assert costs[0].total() < 25, costs[0]


def test_a_policy_of_the_mesh_is_built_once_for_all() -> None:
    made, nodes = many(20, same_namespace=True)
    for node in nodes:
        guard(made, node)
    ran = cost(made, nodes, policy("all", f"action: DENY, {RULE}", "istio-system"))
    assert all(b"policy[all]" in guard(made, node) for node in nodes)
    assert ran["compiled_policy"] == 2
