"""Edits of AuthorizationPolicies and key sets in an existing mesh: the result of a fresh mesh, and the cost."""

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


def mesh_config(text: str) -> list[Any]:
    config, problems = decode_mesh_config([yaml.safe_load(f"{{{text}}}")])
    assert config is not None, problems
    return [("MeshConfig", "mesh", config)]


def inbound_listener(env: World, node_id: str) -> bytes:
    """Return the listener with all security filters of a workload."""
    return bytes(env.resources(node_id)[LISTENER]["virtualInbound"].any)


def fresh_listener(env: World, client: Proxy = CLIENT) -> bytes:
    second_env = World()
    second_env.set(env.rows())
    second_env.commit([("MeshConfig", "mesh", env.mesh.mesh.peek("mesh"))])
    second_env.mesh.commit([(second_env.mesh.jwks, key, row) for key, row in env.mesh.jwks.rows()])
    return inbound_listener(second_env, second_env.connect(client))


STEPS: list[tuple[str, Any]] = [
    ("a policy in the namespace", policy("p", RULE)),
    ("another rule", policy("p", f"action: DENY, {RULE}")),
    ("a selector for other workloads", policy("p", f"selector: {{matchLabels: {{app: other}}}}, {RULE}")),
    ("the workload matches the selector", OTHER),
    ("the workload no longer matches", POD),
    ("dry run", policy("p", RULE, annotations="{istio.io/dry-run: 'true'}")),
    ("a policy for the mesh", policy("root", f"action: DENY, {RULE}", "istio-system")),
    ("an alias of the trust domain", mesh_config("trustDomainAliases: [old]")),
    ("another root namespace", mesh_config("rootNamespace: b")),
    ("a policy in the new root namespace", policy("root", RULE, "b")),
    ("a missing authorizer", policy("p", "action: CUSTOM, provider: {name: judge}, rules: [{}]")),
    ("the provider", mesh_config(PROVIDER)),
    ("its service", JUDGE),
    ("another port", mesh_config(PROVIDER.replace("9000", "9001"))),
    ("unknown keys", make("RequestAuthentication", "r", f"{{jwtRules: [{{issuer: i, jwksUri: '{URI}'}}]}}")),
    (
        "the keys",
        [("JsonWebKeySet", JwksKey("", URI), json.dumps({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}))],
    ),
]


def test_every_read_for_security_filters_is_tracked() -> None:
    env = world(WEB, POD)
    node_id = env.connect(CLIENT)
    states = [inbound_listener(env, node_id)]
    for step, edit in STEPS:
        if isinstance(edit, list):
            env.mesh.commit([(env.mesh.tables[table], key, row) for table, key, row in edit])
        else:
            env.apply_objects(edit)
        states.append(inbound_listener(env, node_id))
        assert states[-1] == fresh_listener(env), step
        assert states[-1] != states[-2], step
    for step, edit in reversed(STEPS):
        if isinstance(edit, dict) and edit["kind"] != "Pod":
            env.set(dict.fromkeys(rows_of([edit])))
            assert inbound_listener(env, node_id) == fresh_listener(env), step
    assert not env.failures


def test_policy_changes_only_listeners() -> None:
    env = world(WEB, POD)
    node_id = env.connect(CLIENT)
    before = env.resources(node_id)
    env.apply_objects(policy("p", RULE))
    after = env.resources(node_id)
    assert {url for url in before if before[url] != after[url]} == {LISTENER}
    assert before[CLUSTER]
    assert before[ROUTE]
    assert [name for name, resource in after[LISTENER].items() if resource != before[LISTENER][name]] == [
        "virtualInbound"
    ]


def test_equal_policy_causes_no_runs() -> None:
    env = world(WEB, POD, policy("p", RULE))
    node_id = env.connect(CLIENT)
    before = inbound_listener(env, node_id)
    unchanged = policy("p", RULE) | {"metadata": {**policy("p", RULE)["metadata"], "resourceVersion": "7"}}
    assert count_runs(env, [node_id], unchanged) == Counter()
    assert inbound_listener(env, node_id) == before


def count_runs(env: World, nodes: list[str], edit: Plain) -> Counter[str]:
    """Return the number of runs of each derivation for an edit, without those for reading all proxies."""
    idle, runs = Counter[str](), Counter[str]()
    for counter, objects in ((idle, ()), (runs, (edit,))):
        env.mesh.on_run = lambda node, counter=counter: counter.update((str(node.fn),))
        env.apply_objects(*objects)
        for node in nodes:
            inbound_listener(env, node)
    return runs - idle


# -- cost ------------------------------------------------------------------------------------------------------------------


def make_workloads(count: int, same_namespace: bool) -> tuple[World, list[str]]:
    """Return workloads with a service and a policy each, in one namespace or in separate ones."""
    env = World()
    nodes = []
    for n in range(count):
        namespace = "a" if same_namespace else f"n{n}"
        spec = f"{{clusterIP: 10.96.1.{n}, selector: {{app: app-{n}}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}"
        env.apply_objects(
            make("Service", f"s{n}", spec, namespace),
            pod(f"p{n}-0", f"10.1.1.{n}", namespace, labels=f"{{app: app-{n}}}"),
            workload_policy(n, namespace, RULE),
        )
        nodes.append(env.connect(proxy("sidecar", f"p{n}-0", namespace, f"10.1.1.{n}", {"app": f"app-{n}"})))
    return env, nodes


def workload_policy(n: int, namespace: str, rule: str) -> Plain:
    return policy(f"z{n}", f"selector: {{matchLabels: {{app: app-{n}}}}}, {rule}", namespace)


@pytest.mark.parametrize("same_namespace", [False, True], ids=["separate namespaces", "one namespace"])
def test_cost_of_a_policy_edit_is_constant(same_namespace: bool) -> None:
    costs: list[Counter[str]] = []
    for count in (10, 60):
        env, nodes = make_workloads(count, same_namespace)
        before = [inbound_listener(env, node) for node in nodes]
        costs.append(
            count_runs(env, nodes, workload_policy(7, "a" if same_namespace else "n7", RULE.replace("sa/c", "sa/d")))
        )
        after = [inbound_listener(env, node) for node in nodes]
        assert [n for n in range(count) if before[n] != after[n]] == [7]
    assert costs[0] == costs[1]
    assert costs[0]["compiled_policy"] == 2, "once for HTTP and once for TCP"
    assert costs[0].total() < 25, costs[0]


def test_mesh_policy_is_built_once() -> None:
    env, nodes = make_workloads(20, same_namespace=True)
    for node in nodes:
        inbound_listener(env, node)
    runs = count_runs(env, nodes, policy("all", f"action: DENY, {RULE}", "istio-system"))
    assert all(b"policy[all]" in inbound_listener(env, node) for node in nodes)
    assert runs["compiled_policy"] == 2
