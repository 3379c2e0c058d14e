"""Which DestinationRule a client's traffic follows."""

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
NOBODY: Labels = frozenset()


def rule(namespace: str, name: str, host: str = HOST, spec: str = "", created: int = 1) -> str:
    return f"""---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: "{name}", namespace: {namespace}, creationTimestamp: "2025-01-01T00:00:{created:02}Z"}}
spec: {{host: "{host}"{", " + spec if spec else ""}}}
"""


def world(*rules: str, mesh: str = "") -> World:
    found = World(mesh)
    found.apply("".join(rules))
    return found


def chosen(found: World, client: str, ref: ServiceRef = API, labels: Labels = NOBODY) -> list[str]:
    return [f"{key.namespace}/{key.name}" for key in merged_rule_key(found.mesh, client, ref, labels)]


def test_the_clients_namespace_comes_first_then_the_services_then_the_root() -> None:
    found = world(rule("client", "1"), rule("svc", "2"), rule("istio-system", "3"))
    assert chosen(found, "client") == ["client/1"]
    assert chosen(found, "svc") == ["svc/2"]
    assert chosen(found, "third") == ["svc/2"]
    assert chosen(found, "third", ServiceRef(HOST, "other")) == ["istio-system/3"]


def test_a_less_specific_host_of_an_earlier_namespace_wins() -> None:
    found = world(rule("client", "wide", "*.cluster.local"), rule("svc", "exact"))
    assert chosen(found, "client") == ["client/wide"]
    assert chosen(found, "third") == ["svc/exact"]


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
def test_the_most_specific_host_counts(hosts: list[str], expected: str | None) -> None:
    found = world(*(rule("svc", f"r{i}", host) for i, host in enumerate(hosts)))
    assert chosen(found, "svc") == ([f"svc/r{hosts.index(expected)}"] if expected else [])


def test_wildcard_services_follow_wildcard_rules_that_cover_them() -> None:
    found = world(
        rule("svc", "same", "*.a.example.com"),
        rule("svc", "wider", "*.example.com"),
        rule("svc", "one", "x.a.example.com"),
    )
    assert chosen(found, "svc", ServiceRef("*.a.example.com", "svc")) == ["svc/same"]
    assert chosen(found, "svc", ServiceRef("*.b.a.example.com", "svc")) == ["svc/same"]
    assert chosen(found, "svc", ServiceRef("*.b.example.com", "svc")) == ["svc/wider"]


@pytest.mark.parametrize(
    ("export_to", "seen_by"),
    [("", "svc third"), ('["*"]', "svc third"), ('["."]', "svc"), ("[svc]", "svc"), ("[third]", "third")],
)
def test_rules_are_seen_where_they_are_exported_to(export_to: str, seen_by: str) -> None:
    found = world(rule("svc", "r", spec=f"exportTo: {export_to}" if export_to else ""))
    assert [n for n in ("svc", "third") if chosen(found, n)] == seen_by.split()


def test_the_mesh_default_of_export_to() -> None:
    found = world(rule("svc", "r"), mesh='defaultDestinationRuleExportTo: ["."]')
    assert chosen(found, "svc") == ["svc/r"]
    assert chosen(found, "third") == []


def test_a_hidden_rule_of_the_services_namespace_still_hides_its_less_specific_ones() -> None:
    found = world(
        rule("svc", "hidden", spec="exportTo: [x, y]"),
        rule("svc", "wide", "*.cluster.local"),
        rule("istio-system", "root"),
    )
    assert chosen(found, "third") == ["istio-system/root"]


def test_proxies_of_the_root_namespace_see_only_its_private_rules_first() -> None:
    found = world(rule("istio-system", "public"), rule("svc", "of-service"))
    assert chosen(found, "istio-system") == ["svc/of-service"]
    found = world(rule("istio-system", "private", spec='exportTo: ["."]'), rule("svc", "of-service"))
    assert chosen(found, "istio-system") == ["istio-system/private"]


def test_rules_for_some_workloads() -> None:
    selector = "workloadSelector: {matchLabels: {app: web}}"
    found = world(rule("client", "some", spec=selector), rule("client", "all"))
    assert chosen(found, "client", labels=frozenset({("app", "web"), ("x", "y")})) == ["client/some"]
    assert chosen(found, "client") == ["client/all"]
    assert inbound_merged_rule_key(found.mesh, "client", API) == merged_rule_key(found.mesh, "client", API, NOBODY)
    found = world(rule("svc", "some", spec=selector))
    assert chosen(found, "third", labels=frozenset({("app", "web")})) == []  # never exported
    assert chosen(found, "svc", labels=frozenset({("app", "web")})) == ["svc/some"]


def test_rules_of_one_host_are_merged_oldest_first() -> None:
    found = world(
        rule(
            "svc",
            "new",
            spec="trafficPolicy: {loadBalancer: {simple: RANDOM}}, subsets: [{name: v1}, {name: v2}]",
            created=2,
        ),
        rule("svc", "old", spec="subsets: [{name: v1, labels: {version: v1}}]", created=1),
    )
    sources = merged_rule_key(found.mesh, "svc", API, NOBODY)
    merged = merged_rule(found.mesh, sources)
    assert merged is not None
    assert merged.key.name == "old"
    assert [(s.name, s.labels) for s in merged.spec.subsets] == [("v1", {"version": "v1"}), ("v2", {})]
    assert merged.spec.traffic_policy is not None
    assert merged.spec.traffic_policy.load_balancer is not None
    assert merged.spec.traffic_policy.load_balancer.simple == "RANDOM"


def test_an_edit_reaches_only_the_services_of_its_host() -> None:
    found = world(rule("svc", "r"), rule("svc", "s", "other"))
    other = ServiceRef("other.svc.svc.cluster.local", "svc")
    nodes = {ref: found.mesh.watch(visible_rule_key, *EVERYBODY, ref) for ref in (API, other)}
    ran: list[object] = []
    found.mesh.on_run = lambda node: ran.append(node.fn)
    hit = found.mesh.commit(
        [
            (DESTINATION_RULE.table(found.mesh), key, None)
            for key in DESTINATION_RULE.table(found.mesh).all_keys()
            if key.name == "r"
        ]
    )
    assert hit == [nodes[API]]
    found.mesh.refresh(nodes[API])
    assert nodes[API].value == ()
    assert nodes[other].value
    assert ran.count(visible_rule_key) == 1


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


def random_rule(choose: random.Random, number: int) -> str:
    spec = choose.choice((*REACHES, SELECTOR, SELECTOR))
    return rule(choose.choice(NAMESPACES[:4]), f"r{number}", choose.choice(HOSTS), spec, created=choose.randint(1, 5))


@pytest.mark.parametrize("mesh", ["", "defaultDestinationRuleExportTo: ['.']"])
def test_clients_of_namespaces_without_rules_for_a_host_follow_what_everybody_follows(seed: int, mesh: str) -> None:
    choose = random.Random(f"viewers {seed} {mesh}")
    refs = (API, ServiceRef(HOST, "other"), ServiceRef("api.example.com", "svc"), ServiceRef(HOST, "istio-system"))
    for _ in range(60):
        found = world(*(random_rule(choose, number) for number in range(choose.randint(1, 5))), mesh=mesh)
        for client in NAMESPACES:
            for labels in (NOBODY, frozenset({("app", "x")})):
                for ref in refs:
                    assert merged_rule_key(found.mesh, client, ref, labels) == visible_rule_key(
                        found.mesh, client, labels, ref
                    )
