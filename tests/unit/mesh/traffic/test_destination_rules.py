"""DestinationRule selection for a client."""

from __future__ import annotations

import random

import pytest

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.mesh.model.facets import Labels
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.traffic.destination_rules import (
    EVERYBODY,
    inbound_merged_rule_key,
    merged_rule,
    merged_rule_key,
    visible_rule_key,
)
from testing.mesh.world import World

HOST = "api.svc.svc.cluster.local"
API = ServiceRef(HOST, "svc")
NO_LABELS: Labels = frozenset()


def rule(namespace: str, name: str, host: str = HOST, spec: str = "", created: int = 1) -> str:
    return f"""---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: "{name}", namespace: {namespace}, creationTimestamp: "2025-01-01T00:00:{created:02}Z"}}
spec: {{host: "{host}"{", " + spec if spec else ""}}}
"""


def world(*rules: str, mesh: str = "") -> World:
    harness = World(mesh)
    harness.apply("".join(rules))
    return harness


def selected_rules(harness: World, client: str, ref: ServiceRef = API, labels: Labels = NO_LABELS) -> list[str]:
    return [f"{key.namespace}/{key.name}" for key in merged_rule_key(harness.mesh, client, ref, labels)]


def test_client_namespace_wins_then_service_then_root() -> None:
    harness = world(rule("client", "1"), rule("svc", "2"), rule("istio-system", "3"))
    assert selected_rules(harness, "client") == ["client/1"]
    assert selected_rules(harness, "svc") == ["svc/2"]
    assert selected_rules(harness, "third") == ["svc/2"]
    assert selected_rules(harness, "third", ServiceRef(HOST, "other")) == ["istio-system/3"]


def test_namespace_order_wins_over_host_specificity() -> None:
    harness = world(rule("client", "wide", "*.cluster.local"), rule("svc", "exact"))
    assert selected_rules(harness, "client") == ["client/wide"]
    assert selected_rules(harness, "third") == ["svc/exact"]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["*", "*.cluster.local", "*.svc.svc.cluster.local", HOST], HOST),
        (["*", "*.cluster.local", "*.svc.svc.cluster.local"], "*.svc.svc.cluster.local"),
        (["*", "*.example.com"], "*"),
        (["api"], "api"),
        (["*.example.com", "other"], None),
    ],
)
def test_most_specific_host_wins(hosts: list[str], expected: str | None) -> None:
    harness = world(*(rule("svc", f"r{i}", host) for i, host in enumerate(hosts)))
    assert selected_rules(harness, "svc") == ([f"svc/r{hosts.index(expected)}"] if expected else [])


def test_wildcard_service_uses_a_covering_wildcard_rule() -> None:
    harness = world(
        rule("svc", "same", "*.a.example.com"),
        rule("svc", "wider", "*.example.com"),
        rule("svc", "one", "x.a.example.com"),
    )
    assert selected_rules(harness, "svc", ServiceRef("*.a.example.com", "svc")) == ["svc/same"]
    assert selected_rules(harness, "svc", ServiceRef("*.b.a.example.com", "svc")) == ["svc/same"]
    assert selected_rules(harness, "svc", ServiceRef("*.b.example.com", "svc")) == ["svc/wider"]


@pytest.mark.parametrize(
    ("export_to", "seen_by"),
    [("", "svc third"), ('["*"]', "svc third"), ('["."]', "svc"), ("[svc]", "svc"), ("[third]", "third")],
)
def test_rule_visibility_by_export_to(export_to: str, seen_by: str) -> None:
    harness = world(rule("svc", "r", spec=f"exportTo: {export_to}" if export_to else ""))
    assert [n for n in ("svc", "third") if selected_rules(harness, n)] == seen_by.split()


def test_default_export_to_of_the_mesh() -> None:
    harness = world(rule("svc", "r"), mesh='defaultDestinationRuleExportTo: ["."]')
    assert selected_rules(harness, "svc") == ["svc/r"]
    assert selected_rules(harness, "third") == []


def test_invisible_rule_hides_less_specific_rules_of_its_namespace() -> None:
    harness = world(
        rule("svc", "hidden", spec="exportTo: [x, y]"),
        rule("svc", "wide", "*.cluster.local"),
        rule("istio-system", "root"),
    )
    assert selected_rules(harness, "third") == ["istio-system/root"]


def test_root_namespace_proxies_prefer_only_its_private_rules() -> None:
    harness = world(rule("istio-system", "public"), rule("svc", "of-service"))
    assert selected_rules(harness, "istio-system") == ["svc/of-service"]
    harness = world(rule("istio-system", "private", spec='exportTo: ["."]'), rule("svc", "of-service"))
    assert selected_rules(harness, "istio-system") == ["istio-system/private"]


def test_rules_with_a_workload_selector() -> None:
    selector = "workloadSelector: {matchLabels: {app: web}}"
    harness = world(rule("client", "some", spec=selector), rule("client", "all"))
    assert selected_rules(harness, "client", labels=frozenset({("app", "web"), ("x", "y")})) == ["client/some"]
    assert selected_rules(harness, "client") == ["client/all"]
    assert inbound_merged_rule_key(harness.mesh, "client", API) == merged_rule_key(
        harness.mesh, "client", API, NO_LABELS
    )
    harness = world(rule("svc", "some", spec=selector))
    assert selected_rules(harness, "third", labels=frozenset({("app", "web")})) == []  # never exported
    assert selected_rules(harness, "svc", labels=frozenset({("app", "web")})) == ["svc/some"]


def test_rules_of_a_host_are_merged_oldest_first() -> None:
    harness = world(
        rule(
            "svc",
            "new",
            spec="trafficPolicy: {loadBalancer: {simple: RANDOM}}, subsets: [{name: v1}, {name: v2}]",
            created=2,
        ),
        rule("svc", "old", spec="subsets: [{name: v1, labels: {version: v1}}]", created=1),
    )
    sources = merged_rule_key(harness.mesh, "svc", API, NO_LABELS)
    merged = merged_rule(harness.mesh, sources)
    assert merged is not None
    assert merged.key.name == "old"
    assert [(s.name, s.labels) for s in merged.spec.subsets] == [("v1", {"version": "v1"}), ("v2", {})]
    assert merged.spec.traffic_policy is not None
    assert merged.spec.traffic_policy.load_balancer is not None
    assert merged.spec.traffic_policy.load_balancer.simple == "RANDOM"


def test_edit_reaches_only_services_of_its_host() -> None:
    harness = world(rule("svc", "r"), rule("svc", "s", "other"))
    other = ServiceRef("other.svc.svc.cluster.local", "svc")
    nodes = {ref: harness.mesh.watch(visible_rule_key, *EVERYBODY, ref) for ref in (API, other)}
    derivations: list[object] = []
    harness.mesh.on_run = lambda node: derivations.append(node.fn)
    hit = harness.mesh.commit(
        [
            (DESTINATION_RULE.table(harness.mesh), key, None)
            for key in DESTINATION_RULE.table(harness.mesh).all_keys()
            if key.name == "r"
        ]
    )
    assert hit == [nodes[API]]
    harness.mesh.refresh(nodes[API])
    assert nodes[API].value == ()
    assert nodes[other].value
    assert derivations.count(visible_rule_key) == 1


NAMESPACES = ("client", "svc", "other", "istio-system", "elsewhere")
HOSTS = (
    "api",
    "api.svc",
    HOST,
    HOST.upper(),
    "*",
    "*.svc.svc.cluster.local",
    "*.local",
    "api.example.com",
    "*.example.com",
)
REACHES = (
    "",
    "exportTo: ['*']",
    "exportTo: ['.']",
    "exportTo: [client]",
    "exportTo: ['.', elsewhere]",
    "exportTo: [svc, other]",
)
SELECTOR = "workloadSelector: {matchLabels: {app: x}}"


def random_rule(rng: random.Random, number: int) -> str:
    spec = rng.choice((*REACHES, SELECTOR, SELECTOR))
    return rule(rng.choice(NAMESPACES[:4]), f"r{number}", rng.choice(HOSTS), spec, created=rng.randint(1, 5))


@pytest.mark.parametrize("mesh", ["", "defaultDestinationRuleExportTo: ['.']"])
def test_visible_rule_key_matches_merged_rule_key_for_any_client(seed: int, mesh: str) -> None:
    rng = random.Random(f"viewers {seed} {mesh}")
    refs = (API, ServiceRef(HOST, "other"), ServiceRef("api.example.com", "svc"), ServiceRef(HOST, "istio-system"))
    for _ in range(60):
        harness = world(*(random_rule(rng, number) for number in range(rng.randint(1, 5))), mesh=mesh)
        for client in NAMESPACES:
            for labels in (NO_LABELS, frozenset({("app", "x")})):
                for ref in refs:
                    assert merged_rule_key(harness.mesh, client, ref, labels) == visible_rule_key(
                        harness.mesh, client, labels, ref
                    )
