"""Downstream TLS contexts and the sources of their secrets."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.extensions.transport_sockets.tls.v3 import common_pb2
from google.protobuf import json_format

from pilot.config.mesh.mesh_config import TLSConfig
from pilot.config.networking.gateway import ServerTLSSettings, TLSCertificate
from pilot.envoy.transport_socket.downstream_tls import (
    HTTP3_ALPN,
    MESH_CIPHERS,
    PEER_ALPN,
    ServerCertificates,
    build_inbound_context,
    build_server_context,
)
from pilot.envoy.transport_socket.sds import SdsProvider, build_credential_secret, build_file_secret
from pilot.envoy.transport_socket.transport_sockets import build_quic_downstream
from pilot.mesh.model.facets import SecretServersFacet, TlsFilesFacet


def server(
    quic: bool = False,
    defaults: TLSConfig | None = None,
    certificates: ServerCertificates | None = None,
    **settings: Any,
) -> dict[str, Any]:
    context = build_server_context(
        ServerTLSSettings(**settings), certificates or ServerCertificates(), quic=quic, defaults=defaults
    )
    fields: dict[str, Any] = json_format.MessageToDict(context)
    return fields


def certificate_names(context: dict[str, Any]) -> list[str]:
    return [c["name"] for c in context["commonTlsContext"]["tlsCertificateSdsSecretConfigs"]]


def roots(context: dict[str, Any]) -> str | None:
    combined = context["commonTlsContext"].get("combinedValidationContext", {})
    name: str | None = combined.get("validationContextSdsSecretConfig", {}).get("name")
    return name


FILES = {"server_certificate": "/c", "private_key": "/k", "ca_certificates": "/ca"}


@pytest.mark.parametrize(
    ("settings", "certificates", "root_name", "required"),
    [
        ({"mode": "SIMPLE", "credential_name": "web"}, ["kubernetes://web"], None, False),
        ({"mode": "MUTUAL", "credential_name": "web"}, ["kubernetes://web"], "kubernetes://web-cacert", True),
        ({"mode": "OPTIONAL_MUTUAL", "credential_name": "web"}, ["kubernetes://web"], "kubernetes://web-cacert", False),
        (
            {"mode": "MUTUAL", "credential_names": ("rsa", "ecdsa")},
            ["kubernetes://rsa", "kubernetes://ecdsa"],
            "kubernetes://rsa-cacert",
            True,
        ),
        (
            {"mode": "MUTUAL", "credential_name": "web", "ca_cert_credential_name": "ca"},
            ["kubernetes://web"],
            "kubernetes://ca",
            True,
        ),
        ({"mode": "SIMPLE", **FILES}, ["file-cert:/c~/k"], None, False),
        ({"mode": "MUTUAL", **FILES}, ["file-cert:/c~/k"], "file-root:/ca", True),
        ({"mode": "OPTIONAL_MUTUAL", **FILES}, ["file-cert:/c~/k"], "file-root:/ca", False),
        (
            {"mode": "SIMPLE", "tls_certificates": (TLSCertificate("/a", "/b"), TLSCertificate("/d", "/e"))},
            ["file-cert:/a~/b", "file-cert:/d~/e"],
            None,
            False,
        ),
        ({"mode": "ISTIO_MUTUAL"}, ["default"], "ROOTCA", True),
        ({"mode": "ISTIO_MUTUAL", "credential_name": "ignored"}, ["default"], "ROOTCA", True),
        ({"mode": "SIMPLE", "credential_name": "builtin://"}, ["default"], None, False),
    ],
)
def test_server_contexts(
    settings: dict[str, Any], certificates: list[str], root_name: str | None, required: bool
) -> None:
    context = server(**settings)
    assert certificate_names(context) == certificates
    assert roots(context) == root_name
    assert context["requireClientCertificate"] is required
    assert context["commonTlsContext"]["alpnProtocols"] == ["h2", "http/1.1"]


def test_http3_requires_no_client_certificate() -> None:
    context = build_server_context(
        ServerTLSSettings(mode="MUTUAL", credential_name="web"), ServerCertificates(), HTTP3_ALPN, quic=True
    )
    assert not context.require_client_certificate.value
    assert list(context.common_tls_context.alpn_protocols) == ["h3"]
    assert build_quic_downstream(context).name == "envoy.transport_sockets.quic"


def test_client_certificate_verification() -> None:
    context = server(
        mode="MUTUAL",
        credential_name="web",
        subject_alt_names=("a",),
        verify_certificate_hash=("h",),
        verify_certificate_spki=("s",),
    )
    assert context["commonTlsContext"]["combinedValidationContext"]["defaultValidationContext"] == {
        "matchSubjectAltNames": [{"exact": "a"}],
        "verifyCertificateHash": ["h"],
        "verifyCertificateSpki": ["s"],
    }
    simple = server(mode="SIMPLE", credential_name="web", subject_alt_names=("a",))
    assert simple["commonTlsContext"]["validationContext"] == {"matchSubjectAltNames": [{"exact": "a"}]}
    lax = server(mode="MUTUAL", **FILES, ca_crl="/crl", insecure_skip_verify=True)
    assert lax["commonTlsContext"]["combinedValidationContext"]["defaultValidationContext"] == {
        "crl": {"filename": "/crl"},
        "trustChainVerification": "ACCEPT_UNTRUSTED",
    }


@pytest.mark.parametrize(
    ("settings", "defaults", "expected"),
    [
        ({}, None, None),
        (
            {"min_protocol_version": "TLSV1_2", "max_protocol_version": "TLSV1_3"},
            None,
            {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3"},
        ),
        ({"cipher_suites": ("AES128-SHA", "NO-SUCH", "AES128-SHA")}, None, {"cipherSuites": ["AES128-SHA"]}),
        (
            {},
            TLSConfig(cipher_suites=("AES256-SHA",), ecdh_curves=("P-256",), min_protocol_version="TLSV1_3"),
            {"cipherSuites": ["AES256-SHA"], "ecdhCurves": ["P-256"], "tlsMinimumProtocolVersion": "TLSv1_3"},
        ),
        (
            {"cipher_suites": ("AES128-SHA",), "min_protocol_version": "TLSV1_1"},
            TLSConfig(cipher_suites=("AES256-SHA",), min_protocol_version="TLSV1_3"),
            {"cipherSuites": ["AES128-SHA"], "tlsMinimumProtocolVersion": "TLSv1_1"},
        ),
    ],
)
def test_tls_parameters(settings: dict[str, Any], defaults: TLSConfig | None, expected: Any) -> None:
    assert (
        server(mode="SIMPLE", credential_name="web", defaults=defaults, **settings)["commonTlsContext"].get("tlsParams")
        == expected
    )
    assert "tlsParams" not in server(mode="ISTIO_MUTUAL", defaults=defaults, **settings)["commonTlsContext"]


def test_inbound_mutual_tls_context() -> None:
    context = json_format.MessageToDict(build_inbound_context(ServerCertificates(), PEER_ALPN, ("td", "old")))
    common = context["commonTlsContext"]
    assert common["alpnProtocols"] == ["istio-peer-exchange", "h2", "http/1.1"]
    assert common["tlsParams"] == {
        "tlsMinimumProtocolVersion": "TLSv1_2",
        "tlsMaximumProtocolVersion": "TLSv1_3",
        "cipherSuites": list(MESH_CIPHERS),
    }
    names = common["combinedValidationContext"]["defaultValidationContext"]["matchSubjectAltNames"]
    assert names == [{"prefix": "spiffe://td/"}, {"prefix": "spiffe://old/"}]
    assert (certificate_names(context), roots(context), context["requireClientCertificate"]) == (
        ["default"],
        "ROOTCA",
        True,
    )
    strict = build_inbound_context(
        ServerCertificates(), ("h2",), (), TLSConfig(min_protocol_version="TLSV1_3", cipher_suites=("AES128-SHA",))
    )
    assert json_format.MessageToDict(strict)["commonTlsContext"]["tlsParams"] == {
        "tlsMinimumProtocolVersion": "TLSv1_3",
        "tlsMaximumProtocolVersion": "TLSv1_3",
        "cipherSuites": ["AES128-SHA"],
    }


@pytest.mark.parametrize(
    ("compliance", "parameters"),
    [
        ("fips-140-2", {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_2"}),
        ("fips-140-3", {"compliancePolicies": ["FIPS_202205"]}),
    ],
)
def test_inbound_mutual_tls_compliance_policy(compliance: str, parameters: dict[str, Any]) -> None:
    context = build_inbound_context(ServerCertificates(), PEER_ALPN, ("td",), compliance=compliance)
    tls_params = json_format.MessageToDict(context)["commonTlsContext"]["tlsParams"]
    assert {**tls_params, **parameters} == tls_params


def test_inbound_certificate_files() -> None:
    certificates = ServerCertificates(
        TlsFilesFacet(server_cert="/c", server_key="/k", server_root="/ca"), SecretServersFacet(files=True)
    )
    context = json_format.MessageToDict(build_inbound_context(certificates, ("h2",), ()))
    assert (certificate_names(context), roots(context)) == (["file-cert:/c~/k"], "file-root:/ca")
    source = context["commonTlsContext"]["tlsCertificateSdsSecretConfigs"][0]["sdsConfig"]
    assert source["apiConfigSource"]["grpcServices"] == [{"envoyGrpc": {"clusterName": "sds-files-grpc"}}]


@pytest.mark.parametrize(
    ("name", "user_server", "provider", "secret", "cluster"),
    [
        ("web", False, None, "kubernetes://web", None),
        ("web", True, None, "kubernetes://web", None),
        ("sds://web", True, SdsProvider("outbound|80||sds", "sds"), "sds://web", "sds-external"),
        ("sds://web", False, SdsProvider("outbound|80||sds", "sds"), "web", "outbound|80||sds"),
        ("sds://web", False, None, "kubernetes://web", None),
        ("builtin://-cacert", False, None, "ROOTCA", "sds-grpc"),
    ],
)
def test_credential_secrets(
    name: str, user_server: bool, provider: SdsProvider | None, secret: str, cluster: str | None
) -> None:
    secret_config = build_credential_secret(name, user_server, provider)
    assert secret_config.name == secret
    if cluster is None:
        assert secret_config.sds_config.HasField("ads")
        assert not secret_config.sds_config.HasField("initial_fetch_timeout")  # must not hold back the listener
    else:
        assert secret_config.sds_config.api_config_source.grpc_services[0].envoy_grpc.cluster_name == cluster


def test_mesh_secrets_have_an_initial_fetch_timeout() -> None:
    for name in ("default", "ROOTCA"):
        assert build_file_secret("", default=name).sds_config.HasField("initial_fetch_timeout")
    assert not build_file_secret("file-root:/ca").sds_config.HasField("initial_fetch_timeout")


def test_names_that_envoy_rejects_are_not_sent() -> None:
    defaults = TLSConfig(cipher_suites=("TLS_AES_128_GCM_SHA256", "AES128-SHA"), ecdh_curves=("P-224", "P-256"))
    parameters = server(mode="SIMPLE", credential_name="web", defaults=defaults)["commonTlsContext"]["tlsParams"]
    assert parameters == {"cipherSuites": ["AES128-SHA"], "ecdhCurves": ["P-256"]}
    own = server(mode="SIMPLE", credential_name="web", ecdh_curves=("P-224", "X25519"))
    assert own["commonTlsContext"]["tlsParams"] == {"ecdhCurves": ["X25519"]}


def test_ciphers_of_tls_1_3_alone_require_tls_1_3() -> None:
    config = TLSConfig(cipher_suites=("TLS_AES_128_GCM_SHA256",))
    parameters = server(mode="SIMPLE", credential_name="web", defaults=config)["commonTlsContext"]["tlsParams"]
    assert parameters == {"tlsMinimumProtocolVersion": "TLSv1_3"}
    inbound = build_inbound_context(ServerCertificates(), PEER_ALPN, ("cluster.local",), config)
    assert list(inbound.common_tls_context.tls_params.cipher_suites) == list(MESH_CIPHERS)
    assert inbound.common_tls_context.tls_params.tls_minimum_protocol_version == common_pb2.TlsParameters.TLSv1_3
