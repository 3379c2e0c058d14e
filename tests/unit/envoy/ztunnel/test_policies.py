"""Policies that ztunnels enforce, held against connections as a ztunnel holds them."""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

import pytest

from pilot.lib.xds_types import AUTHORIZATION
from pilot.mesh.analysis.listed import CHECKS
from protos.istio import authorization_pb2 as pb
from testing.clients.ztunnel import ambient, told, workload
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


def said(policy: pb.Authorization, c: Connection) -> bool:
    """Whether a policy matches: a group of which every clause does; a clause without matches does, a match without fields never."""
    return any(all(_clause(rules, c) for rules in group.rules) for group in policy.groups)


def _clause(rules: pb.Rules, c: Connection) -> bool:
    return not rules.matches or any(match != pb.Match() and _match(match, c) for match in rules.matches)


def _match(m: pb.Match, c: Connection) -> bool:
    def met(positive: Any, negative: Any, holds: Any) -> bool:
        return (not positive or any(map(holds, positive))) and not any(map(holds, negative))

    def text(value: str) -> Any:
        def holds(one: pb.StringMatch) -> bool:
            kind = one.WhichOneof("match_type")
            tests = {
                "exact": value == one.exact,
                "prefix": value.startswith(one.prefix),
                "suffix": value.endswith(one.suffix),
                "presence": bool(value),
            }
            return bool(value) and tests[kind]

        return holds

    def within(value: str) -> Any:
        def holds(one: pb.Address) -> bool:
            return ipaddress.ip_address(value) in ipaddress.ip_network((one.address, one.length), strict=False)

        return holds

    return (
        met(m.principals, m.not_principals, text(c.principal))
        and met(m.namespaces, m.not_namespaces, text(c.account[0]))
        and met(
            m.service_accounts, m.not_service_accounts, lambda one: (one.namespace, one.serviceAccount) == c.account
        )
        and met(m.source_ips, m.not_source_ips, within(c.source))
        and met(m.destination_ips, m.not_destination_ips, within(c.destination))
        and met(m.destination_ports, m.not_destination_ports, lambda port: port == c.port)
    )


def is_east_west_gateway(world: World, name: str, connection: Connection) -> bool:
    """Whether a ztunnel lets a connection to a workload through: no policy denies it, and one allows it if any allows."""
    policies, namespace = told(world, AUTHORIZATION), workload(world, name).namespace
    named = set(workload(world, name).authorization_policies)
    applied = [
        policy
        for key, policy in policies.items()
        if key in named or policy.scope == pb.GLOBAL or (policy.scope == pb.NAMESPACE and policy.namespace == namespace)
    ]
    if any(policy.action == pb.DENY and said(policy, connection) for policy in applied):
        return False
    allowing = [policy for policy in applied if policy.action == pb.ALLOW]
    return not allowing or any(said(policy, connection) for policy in allowing)


def policy(spec: str, name: str = "p", namespace: str = "a", **more: Any) -> Plain:
    return make("AuthorizationPolicy", name, spec, namespace, **more)


def captured(labels: str = "{app: web}", namespace: str = "a", name: str = "w") -> Plain:
    made = pod(name, "10.1.0.1", namespace, labels=labels)
    made["metadata"]["annotations"] = {"ambient.istio.io/redirection": "enabled"}
    return made


def decided(spec: str, *connections: Connection) -> list[bool]:
    made = ambient(captured(), policy(spec))
    return [is_east_west_gateway(made, "w", connection) for connection in connections]


PLAIN = Connection(principal="")
FRIEND = Connection("cluster.local/ns/b/sa/friend")


# -- AuthorizationPolicies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "connection", "expected"),
    [
        ("{}", FRIEND, False),  # it allows nothing
        ("{rules: [{}]}", FRIEND, True),
        ("{action: DENY, rules: [{}]}", FRIEND, False),
        ("{rules: [{from: [{source: {principals: [cluster.local/ns/b/sa/friend]}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {principals: [cluster.local/ns/b/sa/friend]}}]}]}", PLAIN, False),
        ("{rules: [{from: [{source: {principals: ['*']}}]}]}", PLAIN, False),
        ("{rules: [{from: [{source: {principals: ['*/friend']}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {principals: ['cluster.local/ns/b/*']}}]}]}", FRIEND, True),
        ("{action: DENY, rules: [{from: [{source: {notPrincipals: ['*']}}]}]}", PLAIN, False),
        ("{action: DENY, rules: [{from: [{source: {notPrincipals: ['*']}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {namespaces: [b]}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {notNamespaces: [b]}}]}]}", FRIEND, False),
        ("{rules: [{from: [{source: {serviceAccounts: [b/friend]}}]}]}", FRIEND, True),
        ("{rules: [{from: [{source: {serviceAccounts: [friend]}}]}]}", FRIEND, False),  # that of namespace a
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
def test_what_a_policy_lets_through(spec: str, connection: Connection, expected: bool) -> None:
    assert decided(spec, connection) == [expected]


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
def test_what_connections_do_not_show_lets_nothing_through(rule: str, path: str, action: str) -> None:
    """Whatever a policy of requests would do, the connections that it may concern do not come through, and somebody is told."""
    made = ambient(captured(), policy(f"{{action: {action}, rules: [{rule}]}}"))
    assert not is_east_west_gateway(made, "w", FRIEND)
    assert {(p.code, p.path) for p in find_problems_of(made)} == {("not-enforced", f"spec.rules[0].{path}")}


def find_problems_of(made: World) -> list[Any]:
    return [
        p
        for check in CHECKS
        if check.name == "AuthorizationPolicy"
        for key in check.keys(made.mesh)
        for p in check.problems(made.mesh, key)
    ]


def test_the_rest_of_a_rule_that_denies_still_counts() -> None:
    spec = "{action: DENY, rules: [{from: [{source: {namespaces: [b]}}], to: [{operation: {methods: [GET]}}]}]}"
    assert decided(spec, FRIEND, Connection("cluster.local/ns/c/sa/x")) == [False, True]


def test_one_of_several_that_connections_do_not_show_makes_the_list_hold_for_all() -> None:
    spec = "{action: DENY, rules: [{to: [{operation: {methods: [GET]}}, {operation: {ports: ['1']}}]}]}"
    assert decided(spec, FRIEND) == [False]


def test_other_rules_of_a_policy_that_allows_still_allow() -> None:
    spec = "{rules: [{to: [{operation: {methods: [GET]}}]}, {from: [{source: {namespaces: [b]}}]}]}"
    assert decided(spec, FRIEND, PLAIN) == [True, False]


def test_a_custom_policy_denies_for_nobody_can_be_asked() -> None:
    spec = "{action: CUSTOM, provider: {name: x}, rules: [{to: [{operation: {ports: ['8080']}}]}]}"
    assert decided(spec, FRIEND, Connection(port=1)) == [False, True]


def test_policies_that_are_not_for_ztunnels_are_not_sent() -> None:
    counted = policy("{action: DENY, rules: [{}]}", "counted", annotations="{istio.io/dry-run: 'true'}")
    targeted = policy("{action: DENY, rules: [{}], targetRefs: [{kind: Service, name: x}]}", "targeted")
    audited = policy("{action: AUDIT, rules: [{}]}", "audited")
    objects = captured(), counted, targeted, audited
    assert told(ambient(*objects), AUTHORIZATION) == {}
    found = told(ambient(*objects, AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY="true"), AUTHORIZATION)
    assert {name: one.dry_run for name, one in found.items()} == {"a/counted": True}


def test_which_workloads_a_policy_is_for() -> None:
    deny = "{action: DENY, rules: [{}]%s}"
    workloads = captured(), captured("{app: other}", name="o"), captured(namespace="b", name="x")

    def kept_out(*policies: Plain) -> list[str]:
        made = ambient(*workloads, *policies)
        return [name for name in ("w", "o", "x") if not is_east_west_gateway(made, name, FRIEND)]

    assert kept_out(policy(deny % "")) == ["w", "o"]
    assert kept_out(policy(deny % ", selector: {matchLabels: {app: web}}")) == ["w"]
    assert kept_out(policy(deny % "", namespace="istio-system")) == ["w", "o", "x"]
    assert kept_out(policy(deny % ", selector: {matchLabels: {app: web}}", namespace="istio-system")) == ["w", "x"]
    assert kept_out(policy(deny % ", selector: {}")) == ["w", "o"]


def test_a_label_that_changes_brings_another_policy() -> None:
    deny = policy("{action: DENY, rules: [{}], selector: {matchLabels: {app: web}}}")
    made = ambient(captured("{app: other}"), deny)
    assert is_east_west_gateway(made, "w", FRIEND)
    made.apply_objects(captured())
    assert not is_east_west_gateway(made, "w", FRIEND)


# -- PeerAuthentications ---------------------------------------------------------------------------------------------------


def peer(spec: str, name: str = "pa", namespace: str = "a", **more: Any) -> Plain:
    return make("PeerAuthentication", name, spec, namespace, **more)


SELECTED = "selector: {matchLabels: {app: web}}"


@pytest.mark.parametrize(
    ("policies", "named", "open_ports"),
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
        ([peer(f"{{{SELECTED}, mtls: {{mode: STRICT}}}}")], [STRICT], []),
        ([peer("{mtls: {mode: STRICT}}", "ns"), peer(f"{{{SELECTED}, mtls: {{mode: DISABLE}}}}")], [], [8080, 7000]),
        (
            [
                peer("{mtls: {mode: STRICT}}", "ns"),
                peer(f"{{{SELECTED}, portLevelMtls: {{'7000': {{mode: PERMISSIVE}}}}}}"),
            ],
            [CONVERTED % "pa"],
            [7000],
        ),
        (
            [
                peer("{mtls: {mode: STRICT}}", "ns"),
                peer(f"{{{SELECTED}, portLevelMtls: {{'7000': {{mode: DISABLE}}}}}}"),
            ],
            [CONVERTED % "pa"],
            [7000],
        ),
        (
            [
                peer("{mtls: {mode: STRICT}}", "ns"),
                peer(f"{{{SELECTED}, portLevelMtls: {{'7000': {{mode: STRICT}}}}}}"),
            ],
            [STRICT],
            [],
        ),
        (
            [peer(f"{{{SELECTED}, mtls: {{mode: STRICT}}, portLevelMtls: {{'7000': {{mode: PERMISSIVE}}}}}}")],
            [CONVERTED % "pa"],
            [7000],
        ),
        ([peer(f"{{{SELECTED}, portLevelMtls: {{'7000': {{mode: STRICT}}}}}}")], [CONVERTED % "pa"], [8080]),
        (
            [peer(f"{{{SELECTED}, mtls: {{mode: PERMISSIVE}}, portLevelMtls: {{'7000': {{mode: STRICT}}}}}}")],
            [CONVERTED % "pa"],
            [8080],
        ),
        (
            [
                peer("{mtls: {mode: STRICT}}", "m", "istio-system"),
                peer("{mtls: {mode: UNSET}}", "ns"),
                peer(f"{{{SELECTED}, portLevelMtls: {{'7000': {{mode: PERMISSIVE}}}}}}"),
            ],
            [CONVERTED % "pa"],
            [7000],
        ),
        (
            [
                peer(f"{{{SELECTED}, mtls: {{mode: STRICT}}}}", "new", day=3),
                peer(f"{{{SELECTED}, mtls: {{mode: PERMISSIVE}}}}", "old", day=2),
            ],
            [],
            [8080, 7000],
        ),
        ([peer(f"{{{SELECTED}, mtls: {{mode: STRICT}}}}", namespace="istio-system")], [], [8080, 7000]),
        (
            [peer(f"{{{SELECTED}, portLevelMtls: {{'7000': {{mode: STRICT}}}}}}", namespace="istio-system")],
            [],
            [8080, 7000],
        ),
    ],
)
def test_connections_without_mutual_tls(policies: list[Plain], named: list[str], open_ports: list[int]) -> None:
    made = ambient(captured(), *policies)
    assert list(workload(made, "w").authorization_policies) == named
    assert [port for port in (8080, 7000) if is_east_west_gateway(made, "w", PLAIN._replace(port=port))] == open_ports
    assert all(is_east_west_gateway(made, "w", FRIEND._replace(port=port)) for port in (8080, 7000))
    assert {*named} <= {*told(made, AUTHORIZATION)} <= {*named, STRICT}  # none that no workload has


def test_the_static_policy_is_there_where_any_workload_may_name_it() -> None:
    assert told(ambient(captured()), AUTHORIZATION) == {}
    assert list(told(ambient(peer("{mtls: {mode: PERMISSIVE}}")), AUTHORIZATION)) == [STRICT]


# -- waypoints -------------------------------------------------------------------------------------------------------------


def test_workloads_let_their_waypoints_in_where_the_setting_says_so() -> None:
    status = {"addresses": [{"type": "Hostname", "value": "g.a.svc"}]}
    gateway = make(
        "Gateway",
        "g",
        "{gatewayClassName: other, listeners: []}",
        apiVersion="gateway.networking.k8s.io/v1",
        status=status,
    )
    own = pod("g-0", "10.1.0.9", spec="{serviceAccountName: g}", labels="{gateway.networking.k8s.io/gateway-name: g}")
    service = make(
        "Service",
        "s",
        "{clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}",
        labels="{istio.io/use-waypoint: g}",
    )
    deny_all = policy("{}")
    objects = captured(), gateway, own, service, deny_all
    through = Connection("cluster.local/ns/a/sa/g")
    assert not is_east_west_gateway(ambient(*objects), "w", through)
    made = ambient(*objects, PILOT_AUTO_ALLOW_WAYPOINT_POLICY="true")
    assert is_east_west_gateway(made, "w", through)
    assert not is_east_west_gateway(made, "w", FRIEND)
    assert list(workload(made, "w").authorization_policies) == ["a/istio_allow_waypoint_a_g"]


# -- problems --------------------------------------------------------------------------------------------------------------


def test_whoever_writes_a_policy_that_is_enforced_otherwise_is_told_where() -> None:
    spec = "{action: DENY, rules: [{to: [{operation: {methods: [GET], paths: [/x]}}]}, {when: [{key: 'request.headers[x]', values: [y]}]}]}"
    found = {p.path: p.message for p in find_problems_of(ambient(captured(), policy(spec)))}
    assert list(found) == [
        "spec.rules[0].to[0].operation.methods",
        "spec.rules[0].to[0].operation.paths",
        "spec.rules[1].when[0].key",
    ]
    assert "denies every connection" in found["spec.rules[0].to[0].operation.methods"]


def test_a_policy_for_workloads_that_no_ztunnel_captures_is_no_problem() -> None:
    spec = "{action: DENY, rules: [{to: [{operation: {methods: [GET]}}]}]}"
    assert find_problems_of(ambient(pod("w", "10.1.0.1", labels="{app: web}"), policy(spec))) == []
    selective = "{action: DENY, selector: {matchLabels: {app: web}}, rules: [{to: [{operation: {methods: [GET]}}]}]}"
    others = captured("{app: other}"), pod("q", "10.1.0.2", labels="{app: web}")
    assert find_problems_of(ambient(*others, policy(selective))) == []
    assert find_problems_of(ambient(captured(namespace="b"), policy(spec))) == []
    assert find_problems_of(ambient(captured(namespace="b"), policy(spec, namespace="istio-system"))) != []
    made = World()
    made.apply_objects(captured(), policy(spec))
    assert find_problems_of(made) == []
