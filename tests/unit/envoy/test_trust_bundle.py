"""The roots that proxies are told of where the mesh has several."""

from __future__ import annotations

import json

import pytest
import yaml
from google.protobuf import any_pb2

from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.xds_types import PROXY_CONFIG
from protos.istio import mesh_proxy_config_pb2
from testing.mesh.problems import problems_of
from testing.mesh.world import World, proxy
from testing.security.credentials import Authority

OWN, NEXT, PARTNER = Authority("own"), Authority("next"), Authority("partner")
LEAF = OWN.issue("x")


def text(authority: Authority) -> str:
    return authority.pem.decode()


def mesh_of(*pems: str) -> str:
    return json.dumps({"caCertificates": [{"pem": pem} for pem in pems]})


def told(world: World, kind: str = "sidecar") -> list[str] | None:
    """The roots that a proxy is told of; None where it is told of none."""
    have = world.resources(world.connect(proxy(kind, "p", "a", "10.1.0.1"))).get(PROXY_CONFIG)
    if have is None:
        return None
    (resource,) = have.values()
    assert resource.name == ""
    message = any_pb2.Any.FromString(resource.any)
    return [pem.strip() for pem in mesh_proxy_config_pb2.ProxyConfig.FromString(message.value).ca_certificates_pem]


def take(world: World, *authorities: Authority) -> None:
    world.mesh.commit([(world.mesh.authority_roots, "own", tuple(map(text, authorities)))])


def pems(*authorities: Authority) -> list[str]:
    return sorted(text(a).strip() for a in authorities)


def test_a_mesh_of_one_root_tells_nothing() -> None:
    assert told(World(mesh_of(text(PARTNER)))) is None


@pytest.mark.parametrize("kind", ["sidecar", "router"])
def test_the_roots_are_those_of_the_authority_and_of_the_mesh_config_each_once_and_sorted(kind: str) -> None:
    world = World(mesh_of(text(PARTNER) + text(OWN), text(PARTNER)))
    take(world, OWN)
    assert told(world, kind) == pems(OWN, PARTNER)
    take(world, OWN, NEXT)
    assert told(world, kind) == pems(OWN, NEXT, PARTNER)


def test_the_same_roots_in_another_order_are_no_change() -> None:
    world = World()
    take(world, OWN, NEXT)
    before = world.resources(world.connect(proxy("sidecar", "p", "a", "10.1.0.1")))[PROXY_CONFIG][""]
    take(world, NEXT, OWN)
    assert world.resources("sidecar~10.1.0.1~p.a~a.svc.cluster.local")[PROXY_CONFIG][""] is before


@pytest.mark.parametrize(
    ("pem", "reason"),
    [("x", "no valid PEM certificates"), (text(PARTNER) + LEAF.chain.decode(), "not a CA certificate")],
)
def test_what_is_no_root_is_told_and_left_out(pem: str, reason: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(mesh_of(pem))])
    assert config is not None
    (problem,) = problems
    assert (problem.code, problem.path) == ("bad-certificate", "caCertificates[0].pem")
    assert reason in problem.message
    world = World()
    take(world, OWN)
    world.commit([("MeshConfig", "mesh", config)])
    assert told(world) == pems(OWN)


def test_roots_of_the_mesh_config_that_nobody_is_told_of_are_a_problem() -> None:
    world = World(mesh_of(text(PARTNER)))
    assert [(p.code, p.path) for p in problems_of(world)] == [("no-effect", "caCertificates[0].pem")]
    take(world, OWN)
    assert problems_of(world) == ()
