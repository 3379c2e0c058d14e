"""Trust bundle sent to proxies if the mesh has several root certificates."""

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


def mesh_config(*pems: str) -> str:
    return json.dumps({"caCertificates": [{"pem": pem} for pem in pems]})


def trusted_roots(world: World, node_type: str = "sidecar") -> list[str] | None:
    """Return the root certificates sent to a proxy, or None."""
    resources = world.resources(world.connect(proxy(node_type, "p", "a", "10.1.0.1"))).get(PROXY_CONFIG)
    if resources is None:
        return None
    (resource,) = resources.values()
    assert resource.name == ""
    message = any_pb2.Any.FromString(resource.any)
    return [pem.strip() for pem in mesh_proxy_config_pb2.ProxyConfig.FromString(message.value).ca_certificates_pem]


def set_authority_roots(world: World, *authorities: Authority) -> None:
    world.mesh.commit([(world.mesh.authority_roots, "own", tuple(map(text, authorities)))])


def pems(*authorities: Authority) -> list[str]:
    return sorted(text(a).strip() for a in authorities)


def test_no_bundle_without_authority_roots() -> None:
    assert trusted_roots(World(mesh_config(text(PARTNER)))) is None


@pytest.mark.parametrize("node_type", ["sidecar", "router"])
def test_bundle_merges_authority_and_mesh_config_roots(node_type: str) -> None:
    world = World(mesh_config(text(PARTNER) + text(OWN), text(PARTNER)))
    set_authority_roots(world, OWN)
    assert trusted_roots(world, node_type) == pems(OWN, PARTNER)
    set_authority_roots(world, OWN, NEXT)
    assert trusted_roots(world, node_type) == pems(OWN, NEXT, PARTNER)


def test_root_order_does_not_change_the_bundle() -> None:
    world = World()
    set_authority_roots(world, OWN, NEXT)
    before = world.resources(world.connect(proxy("sidecar", "p", "a", "10.1.0.1")))[PROXY_CONFIG][""]
    set_authority_roots(world, NEXT, OWN)
    assert world.resources("sidecar~10.1.0.1~p.a~a.svc.cluster.local")[PROXY_CONFIG][""] is before


@pytest.mark.parametrize(
    ("pem", "reason"),
    [("x", "no valid PEM certificates"), (text(PARTNER) + LEAF.chain.decode(), "not a CA certificate")],
)
def test_invalid_roots_are_reported_and_omitted(pem: str, reason: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(mesh_config(pem))])
    assert config is not None
    (problem,) = problems
    assert (problem.code, problem.path) == ("bad-certificate", "caCertificates[0].pem")
    assert reason in problem.message
    world = World()
    set_authority_roots(world, OWN)
    world.commit([("MeshConfig", "mesh", config)])
    assert trusted_roots(world) == pems(OWN)


def test_unused_mesh_config_roots_are_reported() -> None:
    world = World(mesh_config(text(PARTNER)))
    assert [(p.code, p.path) for p in problems_of(world)] == [("no-effect", "caCertificates[0].pem")]
    set_authority_roots(world, OWN)
    assert problems_of(world) == ()
