"""Certificates on the dashboard."""

from __future__ import annotations

import base64

import pytest

from ca.csr import decode_csr
from ca.pem import certificate_pem
from pilot.debug import certificates
from pilot.lib.metrics.metrics import Metrics
from testing.mesh.objects import world
from testing.security import certificates as issued


def test_secret_certificates_are_listed_without_keys() -> None:
    leaf = issued.root().issue(decode_csr(issued.csr()), [issued.IDENTITY], issued.DAY, issued.NOW)
    data = {"tls.crt": certificate_pem(leaf), "tls.key": b"SECRET", "ca.crt": b"no certificate"}
    coded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": "a"}, "data": coded}
    mesh_world = world(secret)
    material = certificates.material(mesh_world.mesh)
    not_before, not_after = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    assert certificates.validity(material) == [certificates.Validity("Secret a/web", not_before, not_after)]
    assert b"SECRET" not in b"".join(item.pem for item in material)


def test_number_of_certificates_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    coded = {name: base64.b64encode(name.encode()).decode() for name in ("tls.crt", "tls.key", "ca.crt")}
    secrets = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "a"}, "data": coded}
        for name in ("x", "y")
    ]
    material = [
        certificates.Material(f"Secret a/{name}", pem) for name in ("x", "y") for pem in (b"tls.crt", b"ca.crt")
    ]
    mesh_world = world(*secrets)
    for limit in range(len(material) + 1):
        monkeypatch.setattr(certificates, "MOST", limit)
        assert certificates.material(mesh_world.mesh) == material[:limit]


def test_root_is_listed_once_this_process_signs() -> None:
    metrics = Metrics()
    assert certificates.of_authority(metrics) == []
    metrics.root_expires(1_900_000_000.0)
    assert certificates.of_authority(metrics) == [certificates.Validity("root of the mesh", 0.0, 1_900_000_000.0)]
