"""Checks of the certificate authority, and of objects that are treated more strictly."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pilot.settings.parse import load
from pilot.shadow.authority_continuity import compare_roots
from pilot.shadow.cluster_snapshot import ClusterSnapshot, ShadowMesh
from pilot.shadow.strictness import is_private, private_key_sets, private_modules, refused_objects


def _root() -> tuple[bytes, str]:
    """Return a self-signed certificate, and its fingerprint."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM), certificate.fingerprint(hashes.SHA256()).hex()


def test_the_root_in_the_secret_must_be_one_that_workloads_trust() -> None:
    (root, fingerprint), (_, other) = _root(), _root()
    assert compare_roots("s", root, frozenset({fingerprint, other})).is_same
    assert not compare_roots("s", root, frozenset({other})).is_same
    assert not compare_roots("s", b"no certificate", frozenset({other})).is_same


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://10.0.0.1/keys", True),
        ("http://keys.auth.svc.cluster.local/keys", True),
        ("http://keys/keys", True),
        ("http://[::1]/keys", True),
        ("https://accounts.example.com/keys", False),
        ("https://1.1.1.1/keys", False),
    ],
)
def test_private_addresses(uri: str, expected: bool) -> None:
    assert is_private(uri) is expected


def test_key_sets_at_private_addresses_are_found_with_the_setting_that_allows_them() -> None:
    rules = [{"issuer": "a", "jwksUri": "http://10.0.0.1/keys"}, {"issuer": "http://10.0.0.1", "jwks": "{}"}]
    plain = {"kind": "RequestAuthentication", "metadata": {"name": "n", "namespace": "s"}, "spec": {"jwtRules": rules}}
    (finding,) = private_key_sets([plain])
    assert finding.object == "RequestAuthentication s/n"
    assert "PILOT_ALLOWED_CIDRS_IN_JWKS_URIS" in finding.remedy


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("WasmPlugin", {"url": "registry:5000/plugin:1"}, True),
        ("WasmPlugin", {"url": "oci://10.0.0.1/plugin"}, True),
        ("TrafficExtension", {"wasm": {"url": "http://modules.wasm.svc/plugin.wasm"}}, True),
        ("WasmPlugin", {"url": "shop/plugin:1"}, False),
        ("WasmPlugin", {"url": "ghcr.io/shop/plugin"}, False),
        ("WasmPlugin", {"url": "file:///plugin.wasm"}, False),
        ("TrafficExtension", {"lua": {}}, False),
    ],
)
def test_modules_at_private_addresses_are_found_with_the_setting_that_allows_them(
    kind: str, spec: dict[str, Any], expected: bool
) -> None:
    findings = list(private_modules([{"kind": kind, "metadata": {"name": "n", "namespace": "s"}, "spec": spec}]))
    assert [finding.object for finding in findings] == [f"{kind} s/n"] * expected
    assert all("ALLOWED_CIDRS_IN_WASM_FETCH" in finding.remedy for finding in findings)


def test_an_invalid_mesh_config_is_found_with_the_flag_that_allows_it() -> None:
    settings = load([], {}).settings
    mesh = ShadowMesh(ClusterSnapshot([], {"nonsense": 1}, None), settings)
    (finding,) = refused_objects(mesh.problems)
    assert "nonsense: unknown field" in finding.message
    assert "--allow-invalid-mesh-config" in finding.remedy
