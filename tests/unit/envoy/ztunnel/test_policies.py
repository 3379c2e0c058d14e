"""Policies enforced by ztunnels, evaluated as a ztunnel does."""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

import pytest

from pilot.lib.xds_types import AUTHORIZATION
from pilot.mesh.analysis.listed import CHECKS
from protos.istio import authorization_pb2 as pb
from testing.clients.ztunnel import ambient, messages, workload
from testing.mesh.objects import Plain, make, pod
from testing.mesh.world import World

STRICT = "istio-system/istio_converted_static_strict"
CONVERTED = "a/converted_peer_authentication_%s"


class Connection(NamedTuple):
    """A connection to a workload. `principal` is "" without mutual TLS."""

    principal: str = "cluster.local/ns/x/sa/y"
    source: str = "10.1.9.9"
    destination: str = "10.1.0.1"
    port: int = 8080

    @property
    def account(self) -> tuple[str, str]:
        parts = self.principal.split("/")
        return (parts[2], parts[4]) if self.principal else ("", "")


def matches_policy(policy: pb.Authorization, c: Connection) -> bool:
    """Return whether a policy matches: all clauses of one group must match.

    A clause without matches always matches, and a match without fields never does.
    """
    return any(all(_matches_clause(rules, c) for rules in group.rules) for group in policy.groups)


def _matches_clause(rules: pb.Rules, c: Connection) -> bool:
    return not rules.matches or any(match != pb.Match() and _matches_fields(match, c) for match in rules.matches)


def _matches_fields(m: pb.Match, c: Connection) -> bool:
    def satisfies(positive: Any, negative: Any, predicate: Any) -> bool:
        return (not positive or any(map(predicate, positive))) and not any(map(predicate, negative))

    def text(value: str) -> Any:
        def matches(matcher: pb.StringMatch) -> bool:
            kind = matcher.WhichOneof("match_type")
            tests = {
                "exact": value == matcher.exact,
                "prefix": value.startswith(matcher.prefix),
                "suffix": value.endswith(matcher.suffix),
                "presence": bool(value),
            }
            return bool(value) and tests[kind]

        return matches

    def within(value: str) -> Any:
        def predicate(matcher: pb.Address) -> bool:
            return ipaddress.ip_address(value) in ipaddress.ip_network((matcher.address, matcher.length), strict=False)

        return predicate

    return (
        satisfies(m.principals, m.not_principals, text(c.principal))
        and satisfies(m.namespaces, m.not_namespaces, text(c.account[0]))
        and satisfies(
            m.service_accounts,
            m.not_service_accounts,
            lambda matcher: (matcher.namespace, matcher.serviceAccount) == c.account,
        )
        and satisfies(m.source_ips, m.not_source_ips, within(c.source))
        and satisfies(m.destination_ips, m.not_destination_ips, within(c.destination))
        and satisfies(m.destination_ports, m.not_destination_ports, lambda port: port == c.port)
    )


def is_allowed(world: World, name: str, connection: Connection) -> bool:
    """Return whether a ztunnel allows a connection to a workload.

    No DENY policy may match, and if there are ALLOW policies, one must match.
    """
    policies, namespace = messages(world, AUTHORIZATION), workload(world, name).namespace
    selected = set(workload(world, name).authorization_policies)
    effective = [
        policy
        for key, policy in policies.items()
        if key in selected
        or policy.scope == pb.GLOBAL
        or (policy.scope == pb.NAMESPACE and policy.namespace == namespace)
    ]
    if any(policy.action == pb.DENY and matches_policy(policy, connection) for policy in effective):
        return False
    allowing = [policy for policy in effective if policy.action == pb.ALLOW]
    return not allowing or any(matches_policy(policy, connection) for policy in allowing)


def policy(spec: str, name: str = "p", namespace: str = "a", **more: Any) -> Plain:
    return make("AuthorizationPolicy", name, spec, namespace, **more)


def captured_pod(labels: str = "{app: web}", namespace: str = "a", name: str = "w") -> Plain:
    resource = pod(name, "10.1.0.1", namespace, labels=labels)
    resource["metadata"]["annotations"] = {"ambient.istio.io/redirection": "enabled"}
    return resource


def decisions(spec: str, *connections: Connection) -> list[bool]:
    world = ambient(captured_pod(), policy(spec))
    return [is_allowed(world, "w", connection) for connection in connections]


PLAINTEXT = Connection(principal="")
FRIEND = Connection("cluster.local/ns/b/sa/friend")


# -- AuthorizationPolicies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "connection", "expected"),
    [
        ("{}", FRIEND, False),  # allows nothing
        ("{rules: [{}]}", FRIEND, True),
        ("{action: DENY, rules: [{}]}", FRIEND, False),
        ("{rules: [{from: [{source: {principals: [cluster.local/ns/b/sa/friend]}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {principals: [cluster.local/ns/b/sa/friend]}}]}]}", PLAINTEXT, False),
        ("{rules: [{from: [{source: {principals: ['*']}}]}]}", PLAINTEXT, False),
        ("{rules: [{from: [{source: {principals: ['*/friend']}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {principals: ['cluster.local/ns/b/*']}}]}]}", FRIEND, True),
        ("{action: DENY, rules: [{from: [{source: {notPrincipals: ['*']}}]}]}", PLAINTEXT, False),
        ("{action: DENY, rules: [{from: [{source: {notPrincipals: ['*']}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {namespaces: [b]}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {notNamespaces: [b]}}]}]}", FRIEND, False),
        ("{rules: [{from: [{source: {serviceAccounts: [b/friend]}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {serviceAccounts: [friend]}}]}]}", FRIEND, False),  # service account of namespace a
        ("{rules: [{from: [{source: {ipBlocks: [10.1.9.0/24]}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {notIpBlocks: [10.1.9.9]}}]}]}", FRIEND, False),
        ("{rules: [{to: [{operation: {ports: ['8080']}}]}]}", FRIEND, True),
        ("{rules: [{to: [{operation: {notPorts: ['8080']}}]}]}", FRIEND, False),
        ("{rules: [{when: [{key: source.namespace, values: [b]}]}]}", FRIEND, True),
        ("{rules: [{when: [{key: source.principal, notValues: ['*']}]}]}", FRIEND, False),
        ("{rules: [{when: [{key: source.ip, values: [10.1.9.9]}]}]}", FRIEND, True),
        ("{rules: [{when: [{key: destination.ip, notValues: [10.1.0.0/16]}]}]}", FRIEND, False),
        ("{rules: [{when: [{key: destination.port, values: ['80']}]}]}", FRIEND, False),
        ("{rules: [{from: [{source: {namespaces: [b]}}], to: [{operation: {ports: ['80']}}]}]}", FRIEND, False),
        ("{rules: [{from: [{source: {namespaces: [c]}}, {source: {namespaces: [b]}}]}]}", FRIEND, True),
    ],
)
def test_authorization_policies(spec: str, connection: Connection, expected: bool) -> None:
    assert decisions(spec, connection) == [expected]


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("{to: [{operation: {methods: [GET]}}]}", "to[0].operation.methods"),
        ("{to: [{operation: {paths: [/x]}}]}", "to[0].operation.paths"),
        ("{to: [{operation: {hosts: [x]}}]}", "to[0].operation.hosts"),
        ("{from: [{source: {requestPrincipals: ['*']}}]}", "from[0].source.requestPrincipals"),
        ("{from: [{source: {remoteIpBlocks: [10.1.9.9]}}]}", "from[0].source.remoteIpBlocks"),
        ("{from: [{source: {trustDomains: [cluster.local]}}]}", "from[0].source.trustDomains"),
        ("{when: [{key: 'request.headers[x]', values: [y]}]}", "when[0].key"),
        ("{when: [{key: 'request.auth.claims[iss]', values: [y]}]}", "when[0].key"),
        ("{from: [{source: {namespaces: [b]}}], to: [{operation: {methods: [GET]}}]}", "to[0].operation.methods"),
        ("{from: [{source: {namespaces: [b], requestPrincipals: ['*']}}]}", "from[0].source.requestPrincipals"),
        ("{to: [{operation: {ports: ['8080'], methods: [GET]}}]}", "to[0].operation.methods"),
    ],
)
@pytest.mark.parametrize("action", ["ALLOW", "DENY"])
def test_http_only_rules_deny_connections_and_are_reported(rule: str, path: str, action: str) -> None:
    """Connections that an HTTP-only rule may concern are denied, and the rule is reported."""
    world = ambient(captured_pod(), policy(f"{{action: {action}, rules: [{rule}]}}"))
    assert not is_allowed(world, "w", FRIEND)
    problems = {(p.code, p.path) for p in problems_in(world) if p.code != "no-request-principal"}
    assert problems == {("not-enforced", f"spec.rules[0].{path}")}


def problems_in(world: World) -> list[Any]:
    return [
        p
        for check in CHECKS
        if check.name == "AuthorizationPolicy"
        for key in check.keys(world.mesh)
        for p in check.problems(world.mesh, key)
    ]


def test_other_fields_of_http_only_deny_rule_apply() -> None:
    spec = "{action: DENY, rules: [{from: [{source: {namespaces: [b]}}], to: [{operation: {methods: [GET]}}]}]}"
    assert decisions(spec, FRIEND, Connection("cluster.local/ns/c/sa/x")) == [False, True]


def test_one_http_only_operation_widens_the_deny_rule() -> None:
    spec = "{action: DENY, rules: [{to: [{operation: {methods: [GET]}}, {operation: {ports: ['1']}}]}]}"
    assert decisions(spec, FRIEND) == [False]


def test_other_rules_of_allow_policy_apply() -> None:
    spec = "{rules: [{to: [{operation: {methods: [GET]}}]}, {from: [{source: {namespaces: [b]}}]}]}"
    assert decisions(spec, FRIEND, PLAINTEXT) == [True, False]


def test_custom_policy_denies() -> None:
    spec = "{action: CUSTOM, provider: {name: x}, rules: [{to: [{operation: {ports: ['8080']}}]}]}"
    assert decisions(spec, FRIEND, Connection(port=1)) == [False, True]


def test_dry_run_targeted_and_audit_policies_are_not_sent() -> None:
    dry_run_policy = policy("{action: DENY, rules: [{}]}", "counted", annotations="{istio.io/dry-run: 'true'}")
    targeted_policy = policy("{action: DENY, rules: [{}], targetRefs: [{kind: Service, name: x}]}", "targeted")
    audit_policy = policy("{action: AUDIT, rules: [{}]}", "audited")
    objects = captured_pod(), dry_run_policy, targeted_policy, audit_policy
    assert messages(ambient(*objects), AUTHORIZATION) == {}
    policies = messages(ambient(*objects, AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY="true"), AUTHORIZATION)
    assert {name: message.dry_run for name, message in policies.items()} == {"a/counted": True}


def test_policy_scope() -> None:
    deny = "{action: DENY, rules: [{}]%s}"
    workloads = captured_pod(), captured_pod("{app: other}", name="o"), captured_pod(namespace="b", name="x")

    def denied_workloads(*policies: Plain) -> list[str]:
        world = ambient(*workloads, *policies)
        return [name for name in ("w", "o", "x") if not is_allowed(world, name, FRIEND)]

    assert denied_workloads(policy(deny % "")) == ["w", "o"]
    assert denied_workloads(policy(deny % ", selector: {matchLabels: {app: web}}")) == ["w"]
    assert denied_workloads(policy(deny % "", namespace="istio-system")) == ["w", "o", "x"]
    assert denied_workloads(policy(deny % ", selector: {matchLabels: {app: web}}", namespace="istio-system")) == [
        "w",
        "x",
    ]
    assert denied_workloads(policy(deny % ", selector: {}")) == ["w", "o"]


def test_label_change_selects_another_policy() -> None:
    deny = policy("{action: DENY, rules: [{}], selector: {matchLabels: {app: web}}}")
    world = ambient(captured_pod("{app: other}"), deny)
    assert is_allowed(world, "w", FRIEND)
    world.apply_objects(captured_pod())
    assert not is_allowed(world, "w", FRIEND)


# -- PeerAuthentications ---------------------------------------------------------------------------------------------------


def peer(spec: str, name: str = "pa", namespace: str = "a", **more: Any) -> Plain:
    return make("PeerAuthentication", name, spec, namespace, **more)


SELECTOR = "selector: {matchLabels: {app: web}}"


@pytest.mark.parametrize(
    ("policies", "expected", "open_ports"),
    [
        ([], [], [8080, 7000]),
        ([peer("{mtls: {mode: PERMISSIVE}}")], [], [8080, 7000]),
        ([peer("{mtls: {mode: STRICT}}")], [STRICT], []),
        ([peer("{mtls: {mode: STRICT}}", namespace="istio-system")], [STRICT], []),
        (
            [peer("{mtls: {mode: STRICT}}", namespace="istio-system"), peer("{mtls: {mode: PERMISSIVE}}")],
            [],
            [8080, 7000],
        ),
        ([peer("{mtls: {mode: STRICT}}", namespace="istio-system"), peer("{mtls: {mode: UNSET}}")], [STRICT], []),
        ([peer(f"{{{SELECTOR}, mtls: {{mode: STRICT}}}}")], [STRICT], []),
        ([peer("{mtls: {mode: STRICT}}", "ns"), peer(f"{{{SELECTOR}, mtls: {{mode: DISABLE}}}}")], [], [8080, 7000]),
        (
            [
                peer("{mtls: {mode: STRICT}}", "ns"),
                peer(f"{{{SELECTOR}, portLevelMtls: {{'7000': {{mode: PERMISSIVE}}}}}}"),
            ],
            [CONVERTED % "pa"],
            [7000],
        ),
        (
            [
                peer("{mtls: {mode: STRICT}}", "ns"),
                peer(f"{{{SELECTOR}, portLevelMtls: {{'7000': {{mode: DISABLE}}}}}}"),
            ],
            [CONVERTED % "pa"],
            [7000],
        ),
        (
            [
                peer("{mtls: {mode: STRICT}}", "ns"),
                peer(f"{{{SELECTOR}, portLevelMtls: {{'7000': {{mode: STRICT}}}}}}"),
            ],
            [STRICT],
            [],
        ),
        (
            [peer(f"{{{SELECTOR}, mtls: {{mode: STRICT}}, portLevelMtls: {{'7000': {{mode: PERMISSIVE}}}}}}")],
            [CONVERTED % "pa"],
            [7000],
        ),
        ([peer(f"{{{SELECTOR}, portLevelMtls: {{'7000': {{mode: STRICT}}}}}}")], [CONVERTED % "pa"], [8080]),
        (
            [peer(f"{{{SELECTOR}, mtls: {{mode: PERMISSIVE}}, portLevelMtls: {{'7000': {{mode: STRICT}}}}}}")],
            [CONVERTED % "pa"],
            [8080],
        ),
        (
            [
                peer("{mtls: {mode: STRICT}}", "m", "istio-system"),
                peer("{mtls: {mode: UNSET}}", "ns"),
                peer(f"{{{SELECTOR}, portLevelMtls: {{'7000': {{mode: PERMISSIVE}}}}}}"),
            ],
            [CONVERTED % "pa"],
            [7000],
        ),
        (
            [
                peer(f"{{{SELECTOR}, mtls: {{mode: STRICT}}}}", "new", day=3),
                peer(f"{{{SELECTOR}, mtls: {{mode: PERMISSIVE}}}}", "old", day=2),
            ],
            [],
            [8080, 7000],
        ),
        ([peer(f"{{{SELECTOR}, mtls: {{mode: STRICT}}}}", namespace="istio-system")], [], [8080, 7000]),
        (
            [peer(f"{{{SELECTOR}, portLevelMtls: {{'7000': {{mode: STRICT}}}}}}", namespace="istio-system")],
            [],
            [8080, 7000],
        ),
    ],
)
def test_peer_authentications(policies: list[Plain], expected: list[str], open_ports: list[int]) -> None:
    world = ambient(captured_pod(), *policies)
    assert list(workload(world, "w").authorization_policies) == expected
    assert [port for port in (8080, 7000) if is_allowed(world, "w", PLAINTEXT._replace(port=port))] == open_ports
    assert all(is_allowed(world, "w", FRIEND._replace(port=port)) for port in (8080, 7000))
    assert {*expected} <= {*messages(world, AUTHORIZATION)} <= {*expected, STRICT}  # no policy without a workload


def test_static_strict_policy_is_sent_with_any_peer_authentication() -> None:
    assert messages(ambient(captured_pod()), AUTHORIZATION) == {}
    assert list(messages(ambient(peer("{mtls: {mode: PERMISSIVE}}")), AUTHORIZATION)) == [STRICT]


# -- waypoints -------------------------------------------------------------------------------------------------------------


def test_auto_allow_waypoint_policy() -> None:
    status = {"addresses": [{"type": "Hostname", "value": "g.a.svc"}]}
    gateway = make(
        "Gateway",
        "g",
        "{gatewayClassName: other, listeners: []}",
        apiVersion="gateway.networking.k8s.io/v1",
        status=status,
    )
    waypoint_pod = pod(
        "g-0", "10.1.0.9", spec="{serviceAccountName: g}", labels="{gateway.networking.k8s.io/gateway-name: g}"
    )
    service = make(
        "Service",
        "s",
        "{clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}",
        labels="{istio.io/use-waypoint: g}",
    )
    deny_all = policy("{}")
    objects = captured_pod(), gateway, waypoint_pod, service, deny_all
    connection = Connection("cluster.local/ns/a/sa/g")
    assert not is_allowed(ambient(*objects), "w", connection)
    world = ambient(*objects, PILOT_AUTO_ALLOW_WAYPOINT_POLICY="true")
    assert is_allowed(world, "w", connection)
    assert not is_allowed(world, "w", FRIEND)
    assert list(workload(world, "w").authorization_policies) == ["a/istio_allow_waypoint_a_g"]


# -- problems --------------------------------------------------------------------------------------------------------------


def test_unenforced_fields_are_reported() -> None:
    spec = "{action: DENY, rules: [{to: [{operation: {methods: [GET], paths: [/x]}}]}, {when: [{key: 'request.headers[x]', values: [y]}]}]}"
    messages = {p.path: p.message for p in problems_in(ambient(captured_pod(), policy(spec)))}
    assert list(messages) == [
        "spec.rules[0].to[0].operation.methods",
        "spec.rules[0].to[0].operation.paths",
        "spec.rules[1].when[0].key",
    ]
    assert "denies every connection" in messages["spec.rules[0].to[0].operation.methods"]


def test_policy_without_captured_workloads_has_no_problems() -> None:
    spec = "{action: DENY, rules: [{to: [{operation: {methods: [GET]}}]}]}"
    assert problems_in(ambient(pod("w", "10.1.0.1", labels="{app: web}"), policy(spec))) == []
    selective = "{action: DENY, selector: {matchLabels: {app: web}}, rules: [{to: [{operation: {methods: [GET]}}]}]}"
    others = captured_pod("{app: other}"), pod("q", "10.1.0.2", labels="{app: web}")
    assert problems_in(ambient(*others, policy(selective))) == []
    assert problems_in(ambient(captured_pod(namespace="b"), policy(spec))) == []
    assert problems_in(ambient(captured_pod(namespace="b"), policy(spec, namespace="istio-system"))) != []
    world = World()
    world.apply_objects(captured_pod(), policy(spec))
    assert problems_in(world) == []
