"""Secrets for gateways and sidecars: sources, access control, and material rejected by Envoy."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from msgspec.structs import replace

from pilot.config.key_material import Flaw, find_key_pair, find_roots
from pilot.config.kubernetes.secret_config_map import secret_data
from pilot.mesh.model.credential_key import CredentialKey, parse_field, parse_resource
from pilot.mesh.tables.database import EVERY_ACCOUNT, AccountKey
from testing.mesh.objects import make, world
from testing.mesh.world import proxy, rows_of
from testing.security.credentials import (
    Authority,
    config_map,
    data_secret,
    edge_router,
    rsa_key,
    served_secret,
    tls_secret,
)

CA, OTHER = Authority(), Authority("other")
WEB, NEXT = CA.issue("web.example.com"), CA.issue("web.example.com")
HTTPS = "{number: 443, name: https, protocol: HTTPS}"


def gw(tls: str, namespace: str = "edge", name: str = "gw") -> dict[str, Any]:
    return make(
        "Gateway",
        name,
        f"{{selector: {{istio: ingress}}, servers: [{{port: {HTTPS}, hosts: ['*'], tls: {{{tls}}}}}]}}",
        namespace,
    )


def chain(secret: secret_pb2.Secret | None) -> bytes:
    return secret.tls_certificate.certificate_chain.inline_bytes if secret is not None else b""


def roots(secret: secret_pb2.Secret | None) -> bytes:
    return secret.validation_context.trusted_ca.inline_bytes if secret is not None else b""


# -- names and layouts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kubernetes://web", "kubernetes://edge/web"])
def test_certificate_includes_its_key(name: str) -> None:
    secret = served_secret(world(tls_secret("web", WEB)), name)
    assert secret is not None
    assert secret.name == name
    assert chain(secret) == WEB.chain
    assert secret.tls_certificate.private_key.inline_bytes == WEB.private_key
    assert not secret.tls_certificate.HasField("ocsp_staple")


INVALID_NAMES = (
    "web",
    "kubernetes://",
    "kubernetes://a/b/c",
    "kubernetes:///web",
    "kubernetes://edge/",
    "invalid://",
    "builtin://",
    "sds://web",
    "kubernetes-gateway://web",
    "configmap://",
    "x://web",
)


@pytest.mark.parametrize("name", INVALID_NAMES)
def test_invalid_name_has_no_secret(name: str) -> None:
    assert served_secret(world(tls_secret("web", WEB), gw(f"mode: SIMPLE, credentialName: '{name}'")), name) is None


def test_generic_keys_take_precedence_over_tls_keys() -> None:
    generic = {"cert": NEXT.chain, "key": NEXT.private_key, "cacert": OTHER.pem, "crl": OTHER.crl()}
    of_tls = {"tls.crt": WEB.chain, "tls.key": WEB.private_key, "ca.crt": CA.pem}
    harness = world(tls_secret("web", WEB, ca_crt=CA.pem, ca_crl=CA.crl()), data_secret("both", generic | of_tls))
    assert chain(served_secret(harness, "kubernetes://both")) == NEXT.chain
    assert chain(served_secret(harness, "kubernetes://web")) == WEB.chain
    for name, ca, revoked in (("both", OTHER, generic["crl"]), ("web", CA, None)):
        secret = served_secret(harness, f"kubernetes://{name}-cacert")
        assert secret is not None
        assert roots(secret) == ca.pem
        assert secret.validation_context.HasField("crl")
        assert revoked in (None, secret.validation_context.crl.inline_bytes)


def test_empty_value_is_ignored() -> None:
    harness = world(
        data_secret(
            "web",
            {
                "cert": b"",
                "key": b"",
                "cacert": b"",
                "tls.crt": WEB.chain,
                "tls.key": WEB.private_key,
                "ca.crt": CA.pem,
            },
        )
    )
    assert chain(served_secret(harness, "kubernetes://web")) == WEB.chain
    assert roots(served_secret(harness, "kubernetes://web-cacert")) == CA.pem


def test_cacert_secret_takes_precedence_for_roots() -> None:
    beside = tls_secret("web", WEB, ca_crt=CA.pem)
    harness = world(beside)
    assert roots(served_secret(harness, "kubernetes://web-cacert")) == CA.pem
    harness.set(rows_of([data_secret("web-cacert", {"cacert": OTHER.pem})]))
    assert roots(served_secret(harness, "kubernetes://web-cacert")) == OTHER.pem
    harness.set(rows_of([data_secret("web-cacert", {"nothing": b"x"})]))
    assert served_secret(harness, "kubernetes://web-cacert") is None


@pytest.mark.parametrize("name", ["configmap://far/roots", "configmap://far/roots-cacert"])
@pytest.mark.parametrize("key", ["cacert", "ca.crt"])
def test_config_map_roots_are_readable_by_every_proxy(name: str, key: str) -> None:
    harness = world(config_map("roots", {key: CA.pem.decode()}, "far"))
    assert roots(served_secret(harness, name)) == CA.pem
    assert served_secret(harness, "configmap://edge/roots") is None


def test_config_map_is_never_a_key_pair() -> None:
    assert (
        served_secret(
            world(config_map("web", {"cert": WEB.chain.decode(), "key": WEB.private_key.decode()})),
            "configmap://edge/web",
        )
        is None
    )


@pytest.mark.parametrize("kind", ["helm.sh/release.v1", "kubernetes.io/service-account-token"])
def test_excluded_secret_types_are_not_served(kind: str) -> None:
    data = {"tls.crt": WEB.chain, "tls.key": WEB.private_key, "ca.crt": CA.pem}
    harness = world(data_secret("web", data, kind=kind))
    assert (served_secret(harness, "kubernetes://web"), served_secret(harness, "kubernetes://web-cacert")) == (
        None,
        None,
    )


def test_ocsp_response_is_stapled() -> None:
    staple = CA.staple(WEB)
    secret = served_secret(world(tls_secret("web", WEB, tls_ocsp__staple=staple)), "kubernetes://web")
    assert secret is not None
    assert secret.tls_certificate.ocsp_staple.inline_bytes == staple


@pytest.mark.parametrize("staple", [b"garbage", CA.staple(NEXT)], ids=["garbage", "of another certificate"])
def test_invalid_ocsp_response_is_dropped_unless_must_staple(staple: bytes) -> None:
    strict = CA.issue("strict.example.com", must_staple=True)
    harness = world(
        tls_secret("web", WEB, tls_ocsp__staple=staple),
        tls_secret("strict", strict, tls_ocsp__staple=staple),
        tls_secret("bare", strict),
    )
    secret = served_secret(harness, "kubernetes://web")
    assert secret is not None
    assert (chain(secret), secret.tls_certificate.HasField("ocsp_staple")) == (WEB.chain, False)
    assert served_secret(harness, "kubernetes://strict") is None
    assert served_secret(harness, "kubernetes://bare") is None
    harness.set(rows_of([tls_secret("strict", strict, tls_ocsp__staple=CA.staple(strict))]))
    assert chain(served_secret(harness, "kubernetes://strict")) == strict.chain


def test_ca_cert_credential_name_of_a_gateway() -> None:
    harness = world(tls_secret("web", WEB), data_secret("clients", {"ca.crt": CA.pem}))
    assert served_secret(harness, "kubernetes://clients") is None
    harness.set(rows_of([gw("mode: MUTUAL, credentialName: web, caCertCredentialName: clients")]))
    assert roots(served_secret(harness, "kubernetes://clients")) == CA.pem
    assert chain(served_secret(harness, "kubernetes://web")) == WEB.chain


# -- material that Envoy rejects -------------------------------------------------------------------------------------------


def encrypted_key() -> bytes:
    encryption = serialization.BestAvailableEncryption(b"word")
    return WEB.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


SHORT, ODD = CA.issue("x", rsa_key(1024)), CA.issue("x", ec.generate_private_key(ec.SECP256K1()))
PAIRS = {
    "an invalid certificate": (b"garbage", WEB.private_key),
    "a truncated certificate": (WEB.chain[: len(WEB.chain) // 2], WEB.private_key),
    "an invalid certificate in the chain": (
        WEB.chain + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        WEB.private_key,
    ),
    "an invalid key": (WEB.chain, b"garbage"),
    "a key with a passphrase": (WEB.chain, encrypted_key()),
    "another certificate's key": (WEB.chain, NEXT.private_key),
    "a short RSA key": (SHORT.chain, SHORT.private_key),
    "a curve not supported by Envoy": (ODD.chain, ODD.private_key),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_unusable_key_pair_is_not_sent(pair: tuple[bytes, bytes]) -> None:
    harness = world(data_secret("web", {"tls.crt": pair[0], "tls.key": pair[1]}), tls_secret("other", NEXT))
    assert served_secret(harness, "kubernetes://web") is None
    assert chain(served_secret(harness, "kubernetes://other")) == NEXT.chain
    assert not harness.failures


@pytest.mark.parametrize("key", [rsa_key(), ec.generate_private_key(ec.SECP384R1())], ids=["RSA", "P-384"])
def test_supported_key_types_are_sent(key: Any) -> None:
    certificate = CA.issue("x", key)
    assert chain(served_secret(world(tls_secret("web", certificate)), "kubernetes://web")) == certificate.chain


@pytest.mark.parametrize(
    "data",
    [
        {"ca.crt": b"garbage"},
        {"ca.crt": CA.pem, "ca.crl": b"garbage"},
        {"ca.crt": CA.pem, "ca.crl": CA.crl()[:100]},
        {"tls.crt": WEB.chain},
    ],
    ids=["invalid roots", "invalid CRL", "truncated CRL", "no roots"],
)
def test_unusable_roots_are_not_sent(data: dict[str, bytes]) -> None:
    assert served_secret(world(data_secret("web", data)), "kubernetes://web-cacert") is None


def test_private_key_among_certificates_is_not_sent() -> None:
    harness = world(
        data_secret(
            "web",
            {"tls.crt": WEB.private_key + WEB.chain, "tls.key": WEB.private_key, "ca.crt": WEB.private_key + CA.pem},
        )
    )
    assert chain(served_secret(harness, "kubernetes://web")) == WEB.chain
    assert roots(served_secret(harness, "kubernetes://web-cacert")) == CA.pem


def test_expired_certificate_is_sent() -> None:
    expired = CA.issue("x", end=-CA.certificate.not_valid_after_utc.resolution)
    assert chain(served_secret(world(tls_secret("web", expired)), "kubernetes://web")) == expired.chain


def test_key_material_is_not_in_repr() -> None:
    pair = find_key_pair({"tls.crt": WEB.chain, "tls.key": WEB.private_key})
    assert "BEGIN" not in repr(pair)
    assert "'tls.key'" in repr(pair)


# -- access control --------------------------------------------------------------------------------------------------------


def test_secret_of_another_namespace_is_not_served() -> None:
    harness = world(tls_secret("web", WEB, "far", ca_crt=CA.pem))
    for name in (
        "kubernetes://web",
        "kubernetes://far/web",
        "kubernetes://far/web-cacert",
        "kubernetes-gateway://far/web",
    ):
        assert served_secret(harness, name) is None


def test_unauthenticated_proxy_gets_no_secrets() -> None:
    harness = world(tls_secret("web", WEB), config_map("roots", {"cacert": CA.pem.decode()}))
    client = replace(edge_router(), identity="")
    assert (
        harness.secrets(harness.connect(client), "kubernetes://web", "kubernetes://edge/web", "configmap://edge/roots")
        == {}
    )


def test_cve_2021_34824_secret_names_resolve_per_namespace() -> None:
    harness = world(tls_secret("web", WEB, "one"), tls_secret("web", NEXT, "two"))
    one, two = edge_router("a", "one", ip="10.1.0.1"), edge_router("b", "two", ip="10.1.0.2")
    for _ in range(2):  # the second time from the cache
        assert chain(served_secret(harness, "kubernetes://web", one)) == WEB.chain
        assert chain(served_secret(harness, "kubernetes://web", two)) == NEXT.chain
        assert chain(served_secret(harness, "kubernetes://one/web", one)) == WEB.chain
        assert served_secret(harness, "kubernetes://one/web", two) is None


def test_cve_2021_34824_access_is_checked_per_service_account() -> None:
    harness = world(tls_secret("web", WEB, ca_crt=CA.pem))
    reader, other = edge_router("a", account="reader", ip="10.1.0.1"), edge_router("b", account="other", ip="10.1.0.2")
    access = harness.mesh.secret_access
    harness.mesh.commit([(access, EVERY_ACCOUNT, None), (access, AccountKey("Kubernetes", "edge", "reader"), True)])
    assert chain(served_secret(harness, "kubernetes://web", reader)) == WEB.chain
    assert served_secret(harness, "kubernetes://web", other) is None
    harness.mesh.commit([(access, AccountKey("Kubernetes", "edge", "other"), False)])
    assert served_secret(harness, "kubernetes://web", other) is None
    assert roots(served_secret(harness, "kubernetes://web-cacert", other)) == CA.pem
    harness.mesh.commit([(access, AccountKey("Kubernetes", "edge", "other"), True)])
    assert chain(served_secret(harness, "kubernetes://web", other)) == WEB.chain


def test_kubernetes_gateway_secret_requires_a_gateway_reference() -> None:
    harness, name = world(tls_secret("web", WEB, ca_crt=CA.pem)), "kubernetes-gateway://edge/web"
    assert served_secret(harness, name) is None
    harness.set(rows_of([gw(f"mode: SIMPLE, credentialName: '{name}'", namespace="far")]))
    assert served_secret(harness, name) is None
    harness.set(rows_of([gw(f"mode: SIMPLE, credentialName: '{name}'")]))
    assert chain(served_secret(harness, name)) == WEB.chain
    assert served_secret(harness, f"{name}-cacert") is None
    harness.set(rows_of([gw(f"mode: MUTUAL, credentialName: '{name}'")]))
    assert roots(served_secret(harness, f"{name}-cacert")) == CA.pem


def test_cross_namespace_gateway_secret_requires_a_reference_grant() -> None:
    name = "kubernetes-gateway://far/web"
    harness = world(tls_secret("web", WEB, "far"), gw(f"mode: SIMPLE, credentialName: '{name}'"))
    assert served_secret(harness, name) is None
    grant = (
        "{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: edge}], to: [{group: '', kind: Secret}]}"
    )
    harness.apply_objects(make("ReferenceGrant", "g", grant, "far", apiVersion="gateway.networking.k8s.io/v1beta1"))
    assert chain(served_secret(harness, name)) == WEB.chain


def test_secret_lookup_in_the_proxy_cluster_then_the_local_cluster() -> None:
    west = edge_router(cluster="west")
    harness = world(tls_secret("web", WEB), tls_secret("own", WEB))
    assert chain(served_secret(harness, "kubernetes://web", west)) == WEB.chain
    harness.set(rows_of([tls_secret("web", NEXT)], "west"))
    assert chain(served_secret(harness, "kubernetes://web", west)) == NEXT.chain
    assert chain(served_secret(harness, "kubernetes://web", edge_router())) == WEB.chain
    harness.set(rows_of([data_secret("web", {"tls.crt": b"x", "tls.key": b"y"})], "west"))
    assert chain(served_secret(harness, "kubernetes://web", west)) == WEB.chain


def test_sidecar_gets_secrets() -> None:
    sidecar = replace(proxy("sidecar", "app", "edge", "10.1.0.5"), identity="spiffe://cluster.local/ns/edge/sa/app")
    assert chain(served_secret(world(tls_secret("web", WEB)), "kubernetes://web", sidecar)) == WEB.chain


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        ({}, "data", "has neither cert with key nor tls.crt with tls.key"),
        ({"tls.crt": b"x"}, "data[tls.key]", "is missing"),
        ({"tls.key": b"x"}, "data[tls.crt]", "is missing"),
        ({"tls.crt": b"x", "tls.key": b""}, "data[tls.key]", "is empty"),
        ({"tls.crt": b"", "tls.key": b""}, "data[tls.crt]", "is empty"),
        ({"cert": b"x"}, "data[key]", "is missing"),
        ({"tls.crt": b"", "cert": b"x"}, "data[key]", "is missing"),
    ],
)
def test_missing_key_pair_data_is_reported(data: dict[str, bytes], path: str, reason: str) -> None:
    assert find_key_pair(data) == Flaw(path, reason)


@pytest.mark.parametrize(
    ("name", "content", "path", "reason"),
    [("x", b"", "data", "has neither "), ("ca.crt", b"", "data[ca.crt]", "is empty")],
)
def test_missing_roots_data_is_reported(name: str, content: bytes, path: str, reason: str) -> None:
    flaw = find_roots({name: content})
    assert isinstance(flaw, Flaw)
    assert (flaw.path, flaw.reason[: len(reason)]) == (path, reason)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("kubernetes://web", CredentialKey("Secret", "shop", "web")),
        ("kubernetes://a/web", CredentialKey("Secret", "a", "web")),
        ("kubernetes-gateway://a/web", CredentialKey("gateway Secret", "a", "web")),
        ("kubernetes-gateway://web", None),
        ("configmap://roots", CredentialKey("ConfigMap", "shop", "roots")),
        ("configmap://a/roots", CredentialKey("ConfigMap", "a", "roots")),
        ("kubernetes://", None),
        ("kubernetes:///web", None),
        ("kubernetes://a/", None),
        ("kubernetes://a/b/c", None),
        ("default", None),
        ("sds://web", None),
    ],
)
def test_parse_resource_name(text: str, key: CredentialKey | None) -> None:
    assert parse_resource(text, "shop") == key
    assert parse_field(text, "shop") == (key if "://" in text else CredentialKey("Secret", "shop", text))


@pytest.mark.parametrize(
    ("plain", "data"),
    [
        ({}, {}),
        ({"data": {"a": "Yi\n8="}}, {"a": "Yi8="}),
        ({"stringData": {"a": "b"}}, {"a": "Yg=="}),
        ({"data": {"a": "eA==", "c": "eQ=="}, "stringData": {"a": "b"}}, {"a": "Yg==", "c": "eQ=="}),
        ({"data": 5}, 5),
        ({"data": {"a": "eA=="}, "stringData": 5}, 5),
        ({"data": "x", "stringData": {"a": "b"}}, {"a": "b"}),
        ({"data": {"a": 5}, "stringData": {"b": True}}, {"a": 5, "b": True}),
    ],
)
def test_secret_data_merges_data_and_string_data(plain: dict[str, Any], data: Any) -> None:
    assert secret_data(plain) == {"data": data}
