"""Policies that would be copied into too many filter chains."""

from __future__ import annotations

import json
from typing import Any

from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2

from pilot.config.problem import Problem
from pilot.envoy.plans.policy_problems import policy_problems
from pilot.lib.xds_types import LISTENER
from testing.mesh.world import World, proxy

KEY = {"kty": "RSA", "e": "AQAB", "n": "w" * 342}


def _object(kind: str, spec: Any, name: str = "large", namespace: str = "tenant") -> dict[str, Any]:
    group = "networking" if kind in ("Sidecar", "Gateway") else "security"
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": f"{group}.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _policy(principals: int, name: str = "large") -> dict[str, Any]:
    sources = [{"source": {"principals": [f"client-{name}-{n}"]}} for n in range(principals)]
    return _object("AuthorizationPolicy", {"rules": [{"from": sources}]}, name)


def _sidecar(ports: int) -> dict[str, Any]:
    ingress = [
        {"port": {"number": 1000 + n, "name": f"p{n}", "protocol": "HTTP"}, "defaultEndpoint": "127.0.0.1:80"}
        for n in range(ports)
    ]
    return _object("Sidecar", {"ingress": ingress})


def _tokens(name: str, keys: int) -> dict[str, Any]:
    key_set = json.dumps({"keys": [{**KEY, "kid": f"{name}-{n}"} for n in range(keys)]})
    return _object("RequestAuthentication", {"jwtRules": [{"issuer": name, "jwks": key_set}]}, name)


def _rules(listener: listener_pb2.Listener, port: int) -> set[int]:
    """Return the number of RBAC rules in each HTTP chain for a port."""
    counts: set[int] = set()
    for chain in listener.filter_chains:
        if port in (0, chain.filter_chain_match.destination_port.value):
            for network_filter in chain.filters:
                if network_filter.typed_config.Is(hcm_pb2.HttpConnectionManager.DESCRIPTOR):
                    manager = hcm_pb2.HttpConnectionManager.FromString(network_filter.typed_config.value)
                    (rbac,) = [f for f in manager.http_filters if f.name == "envoy.filters.http.rbac"]
                    counts.add(len(http_rbac_pb2.RBAC.FromString(rbac.typed_config.value).rules.policies))
    return counts


def _listener(world: World, node: str, name: str) -> listener_pb2.Listener:
    resource = world.resources(node)[LISTENER][name]
    return listener_pb2.Listener.FromString(any_pb2.Any.FromString(resource.any).value)


def _problems(world: World, node: str) -> list[tuple[str, str, str]]:
    problems: tuple[Problem, ...] = world.value(policy_problems, node)
    assert not world.failures
    return [(problem.code, f"{problem.object.kind.name} {problem.object.name}", problem.path) for problem in problems]


def test_large_policy_of_many_ports_denies_beyond_the_limit() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    world.apply_objects(_sidecar(1000), _policy(8000), _policy(3, "small"))
    listener = _listener(world, node, "virtualInbound")
    assert listener.ByteSize() < 40_000_000
    assert _rules(listener, 1000) == {2}, "the first port has both policies"
    assert _rules(listener, 1999) == {0}, "a filter that allows requests has no rules, so everything is denied"
    assert _problems(world, node) == [("too-large", "AuthorizationPolicy large", "spec")]
    (problem,) = world.value(policy_problems, node)
    assert problem.message.startswith("2 policies that apply to the same workload have a size of ")
    assert "requests to " in problem.message
    assert "limited to 16.0MB" in problem.message


def test_ordinary_policies_are_copied_to_every_port() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    world.apply_objects(_sidecar(500), *(_policy(20, f"p{n}") for n in range(10)))
    assert _rules(_listener(world, node, "virtualInbound"), 0) == {10}
    assert _problems(world, node) == []


def test_large_key_sets_of_many_servers_deny_the_servers_of_one_namespace_beyond_the_limit() -> None:
    def servers(count: int, suffix: str) -> dict[str, Any]:
        return {
            "selector": {"istio": "ingress"},
            "servers": [
                {"port": {"number": 1000 + n, "name": f"p{n}", "protocol": "HTTP"}, "hosts": [f"h{n}.{suffix}"]}
                for n in range(count)
            ],
        }

    world = World()
    node = world.connect(proxy("router", "edge", "tenant", "10.0.0.1", {"istio": "ingress"}))
    honest = servers(1, "honest.example")
    honest["servers"][0]["port"]["number"] = 80
    world.apply_objects(
        _object("Gateway", servers(300, "example.com")),
        _object("Gateway", honest, "honest", "honest"),
        _tokens("large", 250),
    )
    listeners = world.resources(node)[LISTENER]
    assert sum(resource.size for resource in listeners.values()) < 40_000_000
    assert listeners["0.0.0.0_80"].size > 100_000, "the servers of other namespaces have their own limit"
    problems = _problems(world, node)
    assert problems[0] == ("too-large", "RequestAuthentication large", "spec")
    assert problems[-1] == ("too-large", "Gateway large", "spec.servers[299]")
    assert "Gateway honest" not in {place for _, place, _ in problems}


def test_key_sets_that_are_too_large_only_together_are_reported() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    world.apply_objects(*(_tokens(f"t{n}", 250) for n in range(6)))
    assert [place for _, *place in _problems(world, node)] == [["RequestAuthentication t5", "spec.jwtRules[0]"]]
    (problem,) = world.value(policy_problems, node)
    assert problem.message.endswith("exceed 524288 bytes (PILOT_JWKS_MAX_BYTES); the rule's tokens are rejected")
