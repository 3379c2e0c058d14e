"""Secrets for gateways and sidecars: where they come from, who gets them, what is of no use to Envoy."""

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
from testing.security.credentials import Authority, config_map, data_secret, edge, rsa_key, served, tls_secret

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


def chain(found: secret_pb2.Secret | None) -> bytes:
    return found.tls_certificate.certificate_chain.inline_bytes if found is not None else b""


def roots(found: secret_pb2.Secret | None) -> bytes:
    return found.validation_context.trusted_ca.inline_bytes if found is not None else b""


# -- names and layouts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kubernetes://web", "kubernetes://edge/web"])
def test_a_certificate_comes_with_its_key(name: str) -> None:
    found = served(world(tls_secret("web", WEB)), name)
    assert found is not None
    assert found.name == name
    assert chain(found) == WEB.chain
    assert found.tls_certificate.private_key.inline_bytes == WEB.private_key
    assert not found.tls_certificate.HasField("ocsp_staple")


NAMELESS = (
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


@pytest.mark.parametrize("name", NAMELESS)
def test_a_name_that_means_nothing_has_no_secret(name: str) -> None:
    assert served(world(tls_secret("web", WEB), gw(f"mode: SIMPLE, credentialName: '{name}'")), name) is None


def test_generic_keys_come_before_those_of_tls() -> None:
    generic = {"cert": NEXT.chain, "key": NEXT.private_key, "cacert": OTHER.pem, "crl": OTHER.crl()}
    of_tls = {"tls.crt": WEB.chain, "tls.key": WEB.private_key, "ca.crt": CA.pem}
    made = world(tls_secret("web", WEB, ca_crt=CA.pem, ca_crl=CA.crl()), data_secret("both", generic | of_tls))
    assert chain(served(made, "kubernetes://both")) == NEXT.chain
    assert chain(served(made, "kubernetes://web")) == WEB.chain
    for name, ca, revoked in (("both", OTHER, generic["crl"]), ("web", CA, None)):
        found = served(made, f"kubernetes://{name}-cacert")
        assert found is not None
        assert roots(found) == ca.pem
        assert found.validation_context.HasField("crl")
        assert revoked in (None, found.validation_context.crl.inline_bytes)


def test_an_empty_value_is_as_good_as_none() -> None:
    made = world(
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
    assert chain(served(made, "kubernetes://web")) == WEB.chain
    assert roots(served(made, "kubernetes://web-cacert")) == CA.pem


def test_roots_are_in_a_secret_of_their_own_before_that_of_the_certificate() -> None:
    beside = tls_secret("web", WEB, ca_crt=CA.pem)
    made = world(beside)
    assert roots(served(made, "kubernetes://web-cacert")) == CA.pem
    made.set(rows_of([data_secret("web-cacert", {"cacert": OTHER.pem})]))
    assert roots(served(made, "kubernetes://web-cacert")) == OTHER.pem
    made.set(rows_of([data_secret("web-cacert", {"nothing": b"x"})]))
    assert served(made, "kubernetes://web-cacert") is None


@pytest.mark.parametrize("name", ["configmap://far/roots", "configmap://far/roots-cacert"])
@pytest.mark.parametrize("key", ["cacert", "ca.crt"])
def test_roots_of_a_config_map_are_for_everybody(name: str, key: str) -> None:
    made = world(config_map("roots", {key: CA.pem.decode()}, "far"))
    assert roots(served(made, name)) == CA.pem
    assert served(made, "configmap://edge/roots") is None


def test_a_config_map_never_is_a_certificate_with_its_key() -> None:
    assert (
        served(
            world(config_map("web", {"cert": WEB.chain.decode(), "key": WEB.private_key.decode()})),
            "configmap://edge/web",
        )
        is None
    )


@pytest.mark.parametrize("kind", ["helm.sh/release.v1", "kubernetes.io/service-account-token"])
def test_some_types_of_secrets_are_no_credentials(kind: str) -> None:
    data = {"tls.crt": WEB.chain, "tls.key": WEB.private_key, "ca.crt": CA.pem}
    made = world(data_secret("web", data, kind=kind))
    assert (served(made, "kubernetes://web"), served(made, "kubernetes://web-cacert")) == (None, None)


def test_an_ocsp_response_is_stapled() -> None:
    staple = CA.staple(WEB)
    found = served(world(tls_secret("web", WEB, tls_ocsp__staple=staple)), "kubernetes://web")
    assert found is not None
    assert found.tls_certificate.ocsp_staple.inline_bytes == staple


@pytest.mark.parametrize("staple", [b"garbage", CA.staple(NEXT)], ids=["garbage", "of another certificate"])
def test_a_wrong_ocsp_response_is_left_out_unless_the_certificate_must_have_one(staple: bytes) -> None:
    strict = CA.issue("strict.example.com", must_staple=True)
    made = world(
        tls_secret("web", WEB, tls_ocsp__staple=staple),
        tls_secret("strict", strict, tls_ocsp__staple=staple),
        tls_secret("bare", strict),
    )
    found = served(made, "kubernetes://web")
    assert found is not None
    assert (chain(found), found.tls_certificate.HasField("ocsp_staple")) == (WEB.chain, False)
    assert served(made, "kubernetes://strict") is None
    assert served(made, "kubernetes://bare") is None
    made.set(rows_of([tls_secret("strict", strict, tls_ocsp__staple=CA.staple(strict))]))
    assert chain(served(made, "kubernetes://strict")) == strict.chain


def test_roots_that_a_gateway_names_by_a_name_of_their_own() -> None:
    made = world(tls_secret("web", WEB), data_secret("clients", {"ca.crt": CA.pem}))
    assert served(made, "kubernetes://clients") is None
    made.set(rows_of([gw("mode: MUTUAL, credentialName: web, caCertCredentialName: clients")]))
    assert roots(served(made, "kubernetes://clients")) == CA.pem
    assert chain(served(made, "kubernetes://web")) == WEB.chain


# -- material that Envoy would refuse --------------------------------------------------------------------------------------


def encrypted() -> bytes:
    how = serialization.BestAvailableEncryption(b"word")
    return WEB.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


SHORT, ODD = CA.issue("x", rsa_key(1024)), CA.issue("x", ec.generate_private_key(ec.SECP256K1()))
PAIRS = {
    "a certificate that is none": (b"garbage", WEB.private_key),
    "half a certificate": (WEB.chain[: len(WEB.chain) // 2], WEB.private_key),
    "a broken certificate of the chain": (
        WEB.chain + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        WEB.private_key,
    ),
    "a key that is none": (WEB.chain, b"garbage"),
    "a key with a passphrase": (WEB.chain, encrypted()),
    "another certificate's key": (WEB.chain, NEXT.private_key),
    "a short RSA key": (SHORT.chain, SHORT.private_key),
    "a curve that Envoy does not know": (ODD.chain, ODD.private_key),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_certificate_that_envoy_would_refuse_is_not_sent(pair: tuple[bytes, bytes]) -> None:
    made = world(data_secret("web", {"tls.crt": pair[0], "tls.key": pair[1]}), tls_secret("other", NEXT))
    assert served(made, "kubernetes://web") is None
    assert chain(served(made, "kubernetes://other")) == NEXT.chain
    assert not made.failures


@pytest.mark.parametrize("key", [rsa_key(), ec.generate_private_key(ec.SECP384R1())], ids=["RSA", "P-384"])
def test_keys_of_several_kinds_are_sent(key: Any) -> None:
    issued = CA.issue("x", key)
    assert chain(served(world(tls_secret("web", issued)), "kubernetes://web")) == issued.chain


@pytest.mark.parametrize(
    "data",
    [
        {"ca.crt": b"garbage"},
        {"ca.crt": CA.pem, "ca.crl": b"garbage"},
        {"ca.crt": CA.pem, "ca.crl": CA.crl()[:100]},
        {"tls.crt": WEB.chain},
    ],
    ids=["no roots", "no list", "half a list", "nothing"],
)
def test_roots_that_envoy_would_refuse_are_not_sent(data: dict[str, bytes]) -> None:
    assert served(world(data_secret("web", data)), "kubernetes://web-cacert") is None


def test_a_private_key_beside_certificates_is_not_passed_on() -> None:
    made = world(
        data_secret(
            "web",
            {"tls.crt": WEB.private_key + WEB.chain, "tls.key": WEB.private_key, "ca.crt": WEB.private_key + CA.pem},
        )
    )
    assert chain(served(made, "kubernetes://web")) == WEB.chain
    assert roots(served(made, "kubernetes://web-cacert")) == CA.pem


def test_an_expired_certificate_is_sent() -> None:
    old = CA.issue("x", end=-CA.certificate.not_valid_after_utc.resolution)
    assert chain(served(world(tls_secret("web", old)), "kubernetes://web")) == old.chain


def test_key_material_is_not_shown() -> None:
    pair = find_key_pair({"tls.crt": WEB.chain, "tls.key": WEB.private_key})
    assert "BEGIN" not in repr(pair)
    assert "'tls.key'" in repr(pair)


# -- who gets what ---------------------------------------------------------------------------------------------------------


def test_a_secret_of_another_namespace_is_not_served() -> None:
    made = world(tls_secret("web", WEB, "far", ca_crt=CA.pem))
    for name in (
        "kubernetes://web",
        "kubernetes://far/web",
        "kubernetes://far/web-cacert",
        "kubernetes-gateway://far/web",
    ):
        assert served(made, name) is None


def test_a_proxy_without_a_verified_identity_gets_nothing() -> None:
    made = world(tls_secret("web", WEB), config_map("roots", {"cacert": CA.pem.decode()}))
    nobody = replace(edge(), identity="")
    assert (
        made.secrets(made.connect(nobody), "kubernetes://web", "kubernetes://edge/web", "configmap://edge/roots") == {}
    )


def test_cve_2021_34824_a_name_that_two_namespaces_ask_for_is_read_for_each_of_them() -> None:
    made = world(tls_secret("web", WEB, "one"), tls_secret("web", NEXT, "two"))
    one, two = edge("a", "one", ip="10.1.0.1"), edge("b", "two", ip="10.1.0.2")
    for _ in range(2):  # the second time from what is kept
        assert chain(served(made, "kubernetes://web", one)) == WEB.chain
        assert chain(served(made, "kubernetes://web", two)) == NEXT.chain
        assert chain(served(made, "kubernetes://one/web", one)) == WEB.chain
        assert served(made, "kubernetes://one/web", two) is None


def test_cve_2021_34824_one_account_is_refused_what_another_of_its_namespace_gets() -> None:
    made = world(tls_secret("web", WEB, ca_crt=CA.pem))
    reader, other = edge("a", account="reader", ip="10.1.0.1"), edge("b", account="other", ip="10.1.0.2")
    access = made.mesh.secret_access
    made.mesh.commit([(access, EVERY_ACCOUNT, None), (access, AccountKey("Kubernetes", "edge", "reader"), True)])
    assert chain(served(made, "kubernetes://web", reader)) == WEB.chain
    assert served(made, "kubernetes://web", other) is None
    made.mesh.commit([(access, AccountKey("Kubernetes", "edge", "other"), False)])
    assert served(made, "kubernetes://web", other) is None
    assert roots(served(made, "kubernetes://web-cacert", other)) == CA.pem
    made.mesh.commit([(access, AccountKey("Kubernetes", "edge", "other"), True)])
    assert chain(served(made, "kubernetes://web", other)) == WEB.chain


def test_a_gateway_has_to_refer_to_a_secret_of_kubernetes_gateway() -> None:
    made, name = world(tls_secret("web", WEB, ca_crt=CA.pem)), "kubernetes-gateway://edge/web"
    assert served(made, name) is None
    made.set(rows_of([gw(f"mode: SIMPLE, credentialName: '{name}'", namespace="far")]))
    assert served(made, name) is None
    made.set(rows_of([gw(f"mode: SIMPLE, credentialName: '{name}'")]))
    assert chain(served(made, name)) == WEB.chain
    assert served(made, f"{name}-cacert") is None
    made.set(rows_of([gw(f"mode: MUTUAL, credentialName: '{name}'")]))
    assert roots(served(made, f"{name}-cacert")) == CA.pem


def test_a_gateway_may_refer_to_a_secret_of_another_namespace_only_where_that_permits_it() -> None:
    name = "kubernetes-gateway://far/web"
    made = world(tls_secret("web", WEB, "far"), gw(f"mode: SIMPLE, credentialName: '{name}'"))
    assert served(made, name) is None
    grant = (
        "{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: edge}], to: [{group: '', kind: Secret}]}"
    )
    made.apply_objects(make("ReferenceGrant", "g", grant, "far", apiVersion="gateway.networking.k8s.io/v1beta1"))
    assert chain(served(made, name)) == WEB.chain


def test_a_secret_is_looked_for_in_the_proxys_cluster_and_then_in_the_own_one() -> None:
    west = edge(cluster="west")
    made = world(tls_secret("web", WEB), tls_secret("own", WEB))
    assert chain(served(made, "kubernetes://web", west)) == WEB.chain
    made.set(rows_of([tls_secret("web", NEXT)], "west"))
    assert chain(served(made, "kubernetes://web", west)) == NEXT.chain
    assert chain(served(made, "kubernetes://web", edge())) == WEB.chain
    made.set(rows_of([data_secret("web", {"tls.crt": b"x", "tls.key": b"y"})], "west"))
    assert chain(served(made, "kubernetes://web", west)) == WEB.chain


def test_a_sidecar_gets_secrets_too() -> None:
    sidecar = replace(proxy("sidecar", "app", "edge", "10.1.0.5"), identity="spiffe://cluster.local/ns/edge/sa/app")
    assert chain(served(world(tls_secret("web", WEB)), "kubernetes://web", sidecar)) == WEB.chain


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
def test_what_a_secret_lacks_of_a_certificate_is_said(data: dict[str, bytes], path: str, reason: str) -> None:
    assert find_key_pair(data) == Flaw(path, reason)


@pytest.mark.parametrize(
    ("name", "content", "path", "reason"),
    [("x", b"", "data", "has neither "), ("ca.crt", b"", "data[ca.crt]", "is empty")],
)
def test_what_an_object_lacks_of_roots_is_said(name: str, content: bytes, path: str, reason: str) -> None:
    found = find_roots({name: content})
    assert isinstance(found, Flaw)
    assert (found.path, found.reason[: len(reason)]) == (path, reason)


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
def test_what_the_name_of_a_resource_means(text: str, key: CredentialKey | None) -> None:
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
def test_the_data_of_a_secret_is_of_both_its_fields(plain: dict[str, Any], data: Any) -> None:
    assert secret_data(plain) == {"data": data}
