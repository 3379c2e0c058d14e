"""Checks of objects: an edit evaluates few checks, and a label that no workload has is compared with few others."""

from __future__ import annotations

from collections import Counter
from unittest import mock

from pilot.config.object import ObjectKey
from pilot.lib.suggestion import closest
from pilot.mesh.analysis import selector
from pilot.mesh.analysis.destination_rule import destination_rule_problems
from pilot.mesh.analysis.policy import authorization_policy_problems
from testing.mesh.objects import make, pod
from testing.mesh.world import World, rows_of

COUNT = 20
RULE = "{{host: h{0}.example.com, trafficPolicy: {{tls: {{mode: SIMPLE}}}}}}"
ENTRY = "{{hosts: [h{0}.example.com], resolution: DNS, ports: [{{number: 443, name: tls, protocol: TLS}}]}}"
ROUTE = "{{hosts: [r{0}], http: [{{route: [{{destination: {{host: h{0}.example.com, port: {{number: 443}}}}}}]}}]}}"


def test_virtual_service_only_affects_checks_of_rules_for_its_destination() -> None:
    world = World()
    kinds = (("DestinationRule", RULE), ("ServiceEntry", ENTRY))
    world.set(rows_of(make(kind, f"o{n}", spec.format(n)) for kind, spec in kinds for n in range(COUNT)))
    nodes = [world.mesh.watch(destination_rule_problems, ObjectKey("a", f"o{n}")) for n in range(COUNT)]
    assert all([problem.code for problem in node.value] == ["tls-twice"] for node in nodes)
    runs = Counter[str]()
    world.mesh.on_run = lambda node: runs.update((str(node.fn),))
    world.set(rows_of((make("VirtualService", "egress", ROUTE.format(7)),)))
    for node in nodes:
        world.mesh.refresh(node)
    assert [n for n, node in enumerate(nodes) if not node.value] == [7]
    assert runs[str(destination_rule_problems)] == 1


def test_label_of_a_selector_is_compared_with_few_labels_of_workloads() -> None:
    world = World()
    pods = (pod(f"p{n}", f"10.0.{n // 250}.{n % 250 + 1}", labels=f"{{app: {'a' * 40}{n:04}}}") for n in range(200))
    world.set(rows_of((*pods, make("AuthorizationPolicy", "p", f"{{selector: {{matchLabels: {{app: {'a' * 44}}}}}}}"))))
    with mock.patch.object(selector, "closest", wraps=closest) as spy:
        (problem,) = world.mesh.watch(authorization_policy_problems, ObjectKey("a", "p")).value
    assert "did you mean app=aaaa" in problem.message
    assert sum(len(call.args[1]) for call in spy.call_args_list) <= 60
