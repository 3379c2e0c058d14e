"""TLS origination in clusters."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from testing.mesh.clusters import (
    CLIENT,
    HOST,
    ROUTER,
    SERVICE,
    cluster,
    clusters,
    entry,
    http_options,
    rule,
    tls_context,
)
from testing.mesh.world import proxy

IDENTITY = "spiffe://cluster.local/ns/shop/sa/api"
VERSIONS = {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3"}
FILES = {"TLS_CLIENT_CERT_CHAIN": "/c.pem", "TLS_CLIENT_KEY": "/k.pem", "TLS_CLIENT_ROOT_CERT": "/ca.pem"}
EXTERNAL = "hosts: [ext.example.com], location: MESH_EXTERNAL, resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}]"


def with_metadata(**metadata: str) -> Any:
    return replace(CLIENT, metadata={**CLIENT.metadata, **metadata})


def certificate_names(config: dict[str, Any]) -> list[str]:
    return [
        c["name"] for c in tls_context(config).get("commonTlsContext", {}).get("tlsCertificateSdsSecretConfigs", ())
    ]


def validation(config: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the name of the root certificates and the accepted subject alt names."""
    combined = tls_context(config).get("commonTlsContext", {}).get("combinedValidationContext", {})
    names = combined.get("defaultValidationContext", {}).get("matchSubjectAltNames", ())
    return combined.get("validationContextSdsSecretConfig", {}).get("name", ""), [n["exact"] for n in names]


def peer_authentication(mode: str, namespace: str = "shop") -> str:
    return f"""
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {{name: p, namespace: {namespace}}}
spec: {{mtls: {{mode: {mode}}}}}
"""


# -- auto mTLS -------------------------------------------------------------------------------------------------------------


def test_auto_mtls_is_selected_per_endpoint() -> None:
    config = cluster()
    assert [(m["name"], m["match"]) for m in config["transportSocketMatches"]] == [
        ("tlsMode-istio", {"tlsMode": "istio"}),
        ("tlsMode-disabled", {}),
    ]
    assert config["transportSocketMatches"][1]["transportSocket"]["name"] == "envoy.transport_sockets.raw_buffer"
    context = tls_context(config)
    assert context["sni"] == f"outbound_.80_._.{HOST}"
    assert context["commonTlsContext"]["tlsParams"] == VERSIONS
    assert context["commonTlsContext"]["alpnProtocols"] == ["istio-peer-exchange", "istio"]
    assert certificate_names(config) == ["default"]
    assert validation(config) == ("ROOTCA", [IDENTITY])
    subset = cluster(rule(subsets="[{name: v1}]"), subset="v1", port=90)
    assert tls_context(subset)["sni"] == f"outbound_.90_.v1_.{HOST}"
    assert tls_context(subset)["commonTlsContext"]["alpnProtocols"] == ["istio-peer-exchange", "istio", "h2"]


@pytest.mark.parametrize(
    ("objects", "mesh", "expected"),
    [
        ("", "enableAutoMtls: false", False),
        (peer_authentication("DISABLE"), "", False),
        (peer_authentication("STRICT"), "", True),
        (peer_authentication("DISABLE", "istio-system"), "", False),
        (peer_authentication("DISABLE", "istio-system") + peer_authentication("PERMISSIVE"), "", True),
        (rule("{tls: {mode: DISABLE}}"), "", False),
    ],
)
def test_auto_mtls_conditions(objects: str, mesh: str, expected: bool) -> None:
    config = cluster(objects, mesh=mesh)
    assert ("transportSocketMatches" in config) is expected
    assert "transportSocket" not in config


def test_external_services_have_no_auto_mtls() -> None:
    assert not tls_context(cluster(entry(EXTERNAL), host="ext.example.com"))
    internal = EXTERNAL.replace("MESH_EXTERNAL", "MESH_INTERNAL")
    assert tls_context(cluster(entry(internal), host="ext.example.com"))


def test_trust_domain_aliases_are_accepted() -> None:
    assert validation(cluster(mesh="trustDomainAliases: [old]"))[1] == [IDENTITY, "spiffe://old/ns/shop/sa/api"]


def test_headless_services_use_one_transport_socket() -> None:
    headless = "---" + SERVICE.replace("clusterIP: 10.96.0.1\n  clusterIPs: [10.96.0.1]", "clusterIP: None")
    config = cluster(headless)
    assert config["type"] == "ORIGINAL_DST"
    assert config["transportSocket"]["name"] == "envoy.transport_sockets.tls"
    assert "transportSocketMatches" not in config
    assert "transportSocket" not in cluster(headless.replace(", security.istio.io/tlsMode: istio", ""))
    assert "transportSocketMatches" in cluster(headless, proxy=ROUTER)


# -- TLS settings of rules -------------------------------------------------------------------------------------------------


def test_istio_mutual_rule_applies_to_all_endpoints() -> None:
    config = cluster(rule("{tls: {mode: ISTIO_MUTUAL}}"))
    assert "transportSocketMatches" not in config
    assert tls_context(config)["sni"] == f"outbound_.80_._.{HOST}"
    assert validation(config) == ("ROOTCA", [IDENTITY])
    config = cluster(rule("{tls: {mode: ISTIO_MUTUAL, sni: other, subjectAltNames: [spiffe://x/y]}}"))
    assert tls_context(config)["sni"] == "other"
    assert validation(config) == ("ROOTCA", ["spiffe://x/y"])


@pytest.mark.parametrize(
    ("settings", "sni", "certificate", "roots", "alt_names", "options"),
    [
        ("mode: SIMPLE", None, [], "file-root:system", [], {"autoSni": True, "autoSanValidation": True}),
        ("mode: SIMPLE, sni: x.com", "x.com", [], "file-root:system", [], None),
        ("mode: SIMPLE, subjectAltNames: [y.com]", None, [], "file-root:system", ["y.com"], {"autoSni": True}),
        (
            "mode: SIMPLE, caCertificates: /ca.pem",
            None,
            [],
            "file-root:/ca.pem",
            [],
            {"autoSni": True, "autoSanValidation": True},
        ),
        ("mode: SIMPLE, insecureSkipVerify: true", None, [], "", [], {"autoSni": True}),
        ("mode: SIMPLE, sni: x.com, insecureSkipVerify: true", "x.com", [], "", [], None),
        (
            "mode: MUTUAL, sni: x.com, clientCertificate: /c, privateKey: /k, caCertificates: /ca",
            "x.com",
            ["file-cert:/c~/k"],
            "file-root:/ca",
            [],
            None,
        ),
    ],
)
def test_client_tls_settings(
    settings: str, sni: str | None, certificate: list[str], roots: str, alt_names: list[str], options: Any
) -> None:
    config = cluster(rule(f"{{tls: {{{settings}}}}}"))
    assert tls_context(config).get("sni") == sni
    assert certificate_names(config) == certificate
    assert validation(config) == (roots, alt_names)
    assert http_options(config).get("upstreamHttpProtocolOptions") == options
    assert "alpnProtocols" not in tls_context(config)["commonTlsContext"]
    assert tls_context(cluster(rule(f"{{tls: {{{settings}}}}}"), port=90))["commonTlsContext"]["alpnProtocols"] == [
        "h2"
    ]


SIMPLE, OFF = "tls: {mode: SIMPLE, sni: x.com}", "tls: {mode: DISABLE}"
OWN = "tls: {mode: SIMPLE, sni: own.com}"


@pytest.mark.parametrize(
    ("policy", "subset", "rule_sni", "subset_sni"),
    [  # the SNI of each, None for plaintext
        (SIMPLE, OWN, "x.com", "own.com"),
        (SIMPLE, "", "x.com", "x.com"),
        (SIMPLE, OFF, "x.com", None),
        (OFF, OWN, None, "own.com"),
        (SIMPLE, "loadBalancer: {simple: RANDOM}", "x.com", "x.com"),
        (SIMPLE, f"portLevelSettings: [{{port: {{number: 80}}, {OWN}}}]", "x.com", "own.com"),
        (SIMPLE, f"portLevelSettings: [{{port: {{number: 81}}, {OWN}}}]", "x.com", "x.com"),
        (SIMPLE, f"{OFF}, portLevelSettings: [{{port: {{number: 80}}, {OWN}}}]", "x.com", "own.com"),
        (f"{SIMPLE}, portLevelSettings: [{{port: {{number: 80}}, {OFF}}}]", "", None, None),
        (f"{SIMPLE}, portLevelSettings: [{{port: {{number: 80}}, {OFF}}}]", OWN, None, "own.com"),
    ],
)
def test_subset_tls_overrides_rule_tls(policy: str, subset: str, rule_sni: str | None, subset_sni: str | None) -> None:
    objects = rule(f"{{{policy}}}", f"[{{name: v1{', trafficPolicy: {' + subset + '}' if subset else ''}}}]")

    def sni(config: Any) -> str | None:
        return str(tls_context(config)["sni"]) if "transportSocket" in config else None

    assert sni(cluster(objects)) == rule_sni
    assert sni(cluster(objects, subset="v1")) == subset_sni


def test_service_entry_subject_alt_names() -> None:
    spec = EXTERNAL + ", subjectAltNames: [ext.example.com, two.example.com]"
    config = cluster(
        entry(spec) + rule("{tls: {mode: SIMPLE, sni: x.com}}", host="ext.example.com"), host="ext.example.com"
    )
    assert validation(config)[1] == ["ext.example.com", "two.example.com"]
    config = cluster(
        entry(spec) + rule("{tls: {mode: SIMPLE, subjectAltNames: [own.com]}}", host="ext.example.com"),
        host="ext.example.com",
    )
    assert validation(config)[1] == ["own.com"]


def test_certificate_revocation_list() -> None:
    config = cluster(rule("{tls: {mode: SIMPLE, caCertificates: /ca, caCrl: /crl}}"))
    assert tls_context(config)["commonTlsContext"]["combinedValidationContext"]["defaultValidationContext"]["crl"] == {
        "filename": "/crl"
    }


SELECTOR = "workloadSelector: {matchLabels: {app: web}}"


@pytest.mark.parametrize(
    ("mode", "client", "more", "certificate", "roots"),
    [
        ("SIMPLE", ROUTER, "", [], "kubernetes://web-cacert"),
        ("MUTUAL", ROUTER, "", ["kubernetes://web"], "kubernetes://web-cacert"),
        ("SIMPLE", CLIENT, "", [], ""),
        ("MUTUAL", CLIENT, "", [], ""),
        ("MUTUAL", CLIENT, SELECTOR, ["kubernetes://web"], "kubernetes://web-cacert"),
    ],
)
def test_credential_name(mode: str, client: Any, more: str, certificate: list[str], roots: str) -> None:
    result = cluster(rule(f"{{tls: {{mode: {mode}, credentialName: web}}}}", more=more), proxy=client)
    assert certificate_names(result) == certificate
    assert validation(result) == (roots, [])
    assert bool(tls_context(result)) is bool(roots)
    for secret in tls_context(result).get("commonTlsContext", {}).get("tlsCertificateSdsSecretConfigs", ()):
        assert secret["sdsConfig"] == {"ads": {}, "resourceApiVersion": "V3"}


def test_credentials_from_external_sds() -> None:
    client = replace(ROUTER, metadata={**ROUTER.metadata, "credential": "true"})
    configs = clusters(rule("{tls: {mode: MUTUAL, credentialName: 'sds://web'}}"), proxy=client)
    assert certificate_names(configs[f"outbound|80||{HOST}"]) == ["sds://web"]
    assert configs["sds-external"]["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"]["pipe"][
        "path"
    ].endswith("/socket")
    assert "sds-external" not in clusters(proxy=ROUTER)


def test_files_from_external_sds() -> None:
    config = cluster(
        rule("{tls: {mode: SIMPLE, caCertificates: /ca}}"), proxy=with_metadata(**{"file-credential": "true"})
    )
    secret = tls_context(config)["commonTlsContext"]["combinedValidationContext"]["validationContextSdsSecretConfig"]
    assert secret["sdsConfig"]["apiConfigSource"]["grpcServices"][0]["envoyGrpc"]["clusterName"] == "sds-files-grpc"


# -- proxies with certificate files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "host", "certificate", "roots", "alt_names", "sni"),
    [
        ("", HOST, "file-cert:/c.pem~/k.pem", "file-root:/ca.pem", [IDENTITY], f"outbound_.80_._.{HOST}"),
        (rule("{tls: {mode: ISTIO_MUTUAL}}"), HOST, "file-cert:/c.pem~/k.pem", "file-root:/ca.pem", [], None),
        (
            rule("{tls: {mode: MUTUAL, clientCertificate: /x, privateKey: /y, sni: z}}"),
            HOST,
            "file-cert:/c.pem~/k.pem",
            "file-root:/ca.pem",
            [],
            "z",
        ),
        (
            entry(EXTERNAL)
            + rule("{tls: {mode: MUTUAL, clientCertificate: /x, privateKey: /y, sni: z}}", host="ext.example.com"),
            "ext.example.com",
            "file-cert:/x~/y",
            "file-root:system",
            [],
            "z",
        ),
    ],
)
def test_client_certificate_files(
    objects: str, host: str, certificate: str, roots: str, alt_names: list[str], sni: str | None
) -> None:
    config = cluster(objects, host=host, proxy=with_metadata(**FILES))
    assert "transportSocketMatches" not in config
    assert certificate_names(config) == [certificate]
    assert validation(config) == (roots, alt_names)
    assert tls_context(config).get("sni") == sni


def test_rule_overrides_certificate_files_for_external_services() -> None:
    objects = entry(EXTERNAL + ", subjectAltNames: [peer]") + rule(
        "{tls: {mode: ISTIO_MUTUAL}}", host="ext.example.com"
    )
    config = cluster(objects, host="ext.example.com", proxy=with_metadata(**FILES))
    assert certificate_names(config) == ["default"]
    assert validation(config) == ("ROOTCA", [])
    assert tls_context(config)["sni"] == "outbound|80||ext.example.com"
    assert validation(cluster(objects, host="ext.example.com"))[1] == ["peer"]


def test_certificate_files_override_rule_when_configured() -> None:
    objects = entry(EXTERNAL) + rule(
        "{tls: {mode: MUTUAL, clientCertificate: /x, privateKey: /y}}", host="ext.example.com"
    )
    environ = {"PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES": "false"}
    config = cluster(objects, host="ext.example.com", proxy=with_metadata(**FILES), environ=environ)
    assert certificate_names(config) == ["file-cert:/c.pem~/k.pem"]


# -- mesh settings ---------------------------------------------------------------------------------------------------------


def test_mesh_tls_defaults_apply_to_rule_tls() -> None:
    mesh = "tlsDefaults: {cipherSuites: [ECDHE-RSA-AES256-GCM-SHA384], ecdhCurves: [P-256]}"
    parameters = {**VERSIONS, "cipherSuites": ["ECDHE-RSA-AES256-GCM-SHA384"], "ecdhCurves": ["P-256"]}
    assert tls_context(cluster(rule("{tls: {mode: SIMPLE}}"), mesh=mesh))["commonTlsContext"]["tlsParams"] == parameters
    assert tls_context(cluster(mesh=mesh))["commonTlsContext"]["tlsParams"] == VERSIONS


def test_mesh_ciphers_of_tls_1_3_alone_require_tls_1_3() -> None:
    mesh = "tlsDefaults: {cipherSuites: [TLS_AES_256_GCM_SHA384]}"
    parameters = {"tlsMinimumProtocolVersion": "TLSv1_3", "tlsMaximumProtocolVersion": "TLSv1_3"}
    assert tls_context(cluster(rule("{tls: {mode: SIMPLE}}"), mesh=mesh))["commonTlsContext"]["tlsParams"] == parameters


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("fips-140-2", {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_2"}),
        ("fips-140-3", {**VERSIONS, "compliancePolicies": ["FIPS_202205"]}),
        ("something", VERSIONS),
    ],
)
def test_compliance_policy(policy: str, parameters: dict[str, Any]) -> None:
    for objects in ("", rule("{tls: {mode: SIMPLE}}")):
        assert (
            tls_context(cluster(objects, environ={"COMPLIANCE_POLICY": policy}))["commonTlsContext"]["tlsParams"]
            == parameters
        )


def test_metadata_exchange_alpn_can_be_disabled() -> None:
    assert tls_context(cluster(environ={"PILOT_DISABLE_MX_ALPN": "true"}))["commonTlsContext"]["alpnProtocols"] == [
        "istio"
    ]


# -- PROXY protocol --------------------------------------------------------------------------------------------------------


def proxy_protocol(socket: dict[str, Any]) -> tuple[str, str, str]:
    config = socket["typedConfig"]
    return (
        socket["name"].rpartition(".")[2],
        config["config"].get("version", "V1"),
        config["transportSocket"]["name"].rpartition(".")[2],
    )


def test_proxy_protocol_wraps_every_transport_socket() -> None:
    config = cluster(rule("{proxyProtocol: {version: V2}}"))
    assert [proxy_protocol(m["transportSocket"]) for m in config["transportSocketMatches"]] == [
        ("upstream_proxy_protocol", "V2", "tls"),
        ("upstream_proxy_protocol", "V2", "raw_buffer"),
    ]
    tls_config = cluster(rule("{proxyProtocol: {version: V1}, tls: {mode: SIMPLE}}"))
    assert proxy_protocol(tls_config["transportSocket"]) == ("upstream_proxy_protocol", "V1", "tls")
    plaintext_config = cluster(rule("{proxyProtocol: {version: V1}, tls: {mode: DISABLE}}"))
    assert proxy_protocol(plaintext_config["transportSocket"]) == ("upstream_proxy_protocol", "V1", "raw_buffer")


def test_rule_with_workload_selector() -> None:
    other = proxy("sidecar", "db-0", "shop", "10.0.0.3", {"app": "db"})
    objects = rule("{tls: {mode: SIMPLE}}", more=SELECTOR)
    assert "transportSocket" in cluster(objects)
    assert "transportSocket" not in cluster(objects, proxy=other)


@pytest.mark.parametrize(
    ("mode", "matches"),
    [
        ("DISABLE", ["hbone", "tlsMode-disabled"]),
        ("SIMPLE", ["hbone", "user"]),
        ("ISTIO_MUTUAL", ["hbone", "tlsMode-istio"]),
    ],
)
def test_rule_selects_the_fallback_of_a_tunnel(mode: str, matches: list[str]) -> None:
    config = cluster(
        rule(f"{{tls: {{mode: {mode}}}}}"),
        environ={"PILOT_ENABLE_AMBIENT": "true", "PILOT_ENABLE_SENDING_HBONE": "true"},
    )
    assert [match["name"] for match in config["transportSocketMatches"]] == matches


def test_client_certificate_without_its_key_does_not_disable_tunnels() -> None:
    environ = {"PILOT_ENABLE_AMBIENT": "true", "PILOT_ENABLE_SENDING_HBONE": "true"}
    gateway = replace(ROUTER, metadata={**ROUTER.metadata, "TLS_CLIENT_CERT_CHAIN": "/c.pem", "ENABLE_HBONE": "true"})
    config = cluster(proxy=gateway, environ=environ)
    assert [match["name"] for match in config["transportSocketMatches"]] == ["hbone", "tlsMode-disabled"]
