"""Certificates of Gateways that have expired or expire soon."""

from __future__ import annotations

import datetime

import pytest

from pilot.config.problem import Problem, Severity
from testing.mesh.objects import Plain, make, pod, world
from testing.mesh.problems import problems_of
from testing.mesh.world import World
from testing.security.credentials import Authority, data_secret, tls_secret

DAY = 86_400.0
AUTHORITY = Authority()
CERTIFICATE = AUTHORITY.issue("x.com", end=datetime.timedelta(days=30))
END = CERTIFICATE.certificate.not_valid_after_utc
TEXT = END.strftime("%Y-%m-%d %H:%M UTC")
GATEWAY = make(
    "Gateway",
    "gw",
    "{selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.com], "
    "tls: {mode: SIMPLE, credentialName: cert}}]}",
    "edge",
)
ROUTER = pod("edge-0", "10.1.0.9", namespace="edge", labels="{istio: ingress}")


def at(mesh_world: World, days_left: float) -> list[Problem]:
    """Return the problems with certificates a number of days before the end of the certificate."""
    mesh_world.mesh.commit([(mesh_world.mesh.clock, "now", END.timestamp() - days_left * DAY)])
    return [problem for problem in problems_of(mesh_world) if problem.code.startswith("certificate-")]


def secured(*objects: Plain) -> World:
    return world(GATEWAY, ROUTER, *objects)


def test_certificate_is_reported_a_week_before_its_end_and_after_it() -> None:
    mesh_world = secured(tls_secret("cert", CERTIFICATE))
    assert at(mesh_world, 8) == []
    (soon,) = at(mesh_world, 6.9)
    assert (soon.code, soon.severity, soon.object.kind.name, soon.object.name, soon.path) == (
        "certificate-expires-soon",
        Severity.WARNING,
        "Gateway",
        "gw",
        "spec.servers[0].tls.credentialName",
    )
    assert soon.message == f"the certificate of Secret edge/cert expires on {TEXT}, in less than 7 days"
    assert at(mesh_world, 1) == [soon], "the problem does not change while the end comes nearer"
    (expired,) = at(mesh_world, -1)
    assert (expired.code, expired.severity) == ("certificate-expired", Severity.ERROR)
    assert (
        expired.message
        == f"the certificate of Secret edge/cert expired on {TEXT}, so peers that verify it refuse connections"
    )


def test_renewed_certificate_is_no_longer_reported() -> None:
    mesh_world = secured(tls_secret("cert", CERTIFICATE))
    assert at(mesh_world, -1)
    mesh_world.apply_objects(tls_secret("cert", AUTHORITY.issue("x.com", end=datetime.timedelta(days=90))))
    assert at(mesh_world, -1) == []


@pytest.mark.parametrize(("days", "codes"), [(90, []), (20, ["certificate-expired"])])
def test_roots_expire_with_the_last_of_them(days: int, codes: list[str]) -> None:
    other = Authority().issue("root", end=datetime.timedelta(days=days))
    gateway = make(
        "Gateway",
        "gw",
        "{selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.com], "
        "tls: {mode: MUTUAL, credentialName: cert}}]}",
        "edge",
    )
    fresh = AUTHORITY.issue("x.com", end=datetime.timedelta(days=90))
    roots = data_secret("cert-cacert", {"cacert": CERTIFICATE.chain + other.chain})
    mesh_world = world(gateway, ROUTER, tls_secret("cert", fresh), roots)
    assert [problem.code for problem in at(mesh_world, -1)] == codes


def test_nothing_is_reported_while_the_time_is_unknown() -> None:
    old = AUTHORITY.issue("x.com", end=datetime.timedelta(days=-1))
    assert not [p for p in problems_of(secured(tls_secret("cert", old))) if p.code.startswith("certificate-")]
