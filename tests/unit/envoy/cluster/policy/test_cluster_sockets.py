"""The TLS that clusters originate."""

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


def secrets(found: dict[str, Any]) -> list[str]:
    return [c["name"] for c in tls_context(found).get("commonTlsContext", {}).get("tlsCertificateSdsSecretConfigs", ())]


def validation(found: dict[str, Any]) -> tuple[str, list[str]]:
    """Name of the roots, and the names of which the peer must have one."""
    combined = tls_context(found).get("commonTlsContext", {}).get("combinedValidationContext", {})
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


# -- automatic mutual TLS --------------------------------------------------------------------------------------------------


def test_automatic_tls_is_chosen_by_endpoint() -> None:
    found = cluster()
    assert [(m["name"], m["match"]) for m in found["transportSocketMatches"]] == [
        ("tlsMode-istio", {"tlsMode": "istio"}),
        ("tlsMode-disabled", {}),
    ]
    assert found["transportSocketMatches"][1]["transportSocket"]["name"] == "envoy.transport_sockets.raw_buffer"
    context = tls_context(found)
    assert context["sni"] == f"outbound_.80_._.{HOST}"
    assert context["commonTlsContext"]["tlsParams"] == VERSIONS
    assert context["commonTlsContext"]["alpnProtocols"] == ["istio-peer-exchange", "istio"]
    assert secrets(found) == ["default"]
    assert validation(found) == ("ROOTCA", [IDENTITY])
    subset = cluster(rule(subsets="[{name: v1}]"), subset="v1", port=90)
    assert tls_context(subset)["sni"] == f"outbound_.90_.v1_.{HOST}"
    assert tls_context(subset)["commonTlsContext"]["alpnProtocols"] == ["istio-peer-exchange", "istio", "h2"]


@pytest.mark.parametrize(
    ("objects", "mesh", "secured"),
    [
        ("", "enableAutoMtls: false", False),
        (peer_authentication("DISABLE"), "", False),
        (peer_authentication("STRICT"), "", True),
        (peer_authentication("DISABLE", "istio-system"), "", False),
        (peer_authentication("DISABLE", "istio-system") + peer_authentication("PERMISSIVE"), "", True),
        (rule("{tls: {mode: DISABLE}}"), "", False),
    ],
)
def test_when_tls_is_automatic(objects: str, mesh: str, secured: bool) -> None:
    found = cluster(objects, mesh=mesh)
    assert ("transportSocketMatches" in found) is secured
    assert "transportSocket" not in found


def test_services_outside_of_the_mesh_have_none() -> None:
    assert not tls_context(cluster(entry(EXTERNAL), host="ext.example.com"))
    internal = EXTERNAL.replace("MESH_EXTERNAL", "MESH_INTERNAL")
    assert tls_context(cluster(entry(internal), host="ext.example.com"))


def test_aliases_of_the_trust_domain() -> None:
    assert validation(cluster(mesh="trustDomainAliases: [old]"))[1] == [IDENTITY, "spiffe://old/ns/shop/sa/api"]


def test_headless_services_all_or_none() -> None:
    headless = "---" + SERVICE.replace("clusterIP: 10.96.0.1\n  clusterIPs: [10.96.0.1]", "clusterIP: None")
    found = cluster(headless)
    assert found["type"] == "ORIGINAL_DST"
    assert found["transportSocket"]["name"] == "envoy.transport_sockets.tls"
    assert "transportSocketMatches" not in found
    assert "transportSocket" not in cluster(headless.replace(", security.istio.io/tlsMode: istio", ""))
    assert "transportSocketMatches" in cluster(headless, by=ROUTER)


# -- as a rule says --------------------------------------------------------------------------------------------------------


def test_mesh_tls_by_rule_is_for_all_endpoints() -> None:
    found = cluster(rule("{tls: {mode: ISTIO_MUTUAL}}"))
    assert "transportSocketMatches" not in found
    assert tls_context(found)["sni"] == f"outbound_.80_._.{HOST}"
    assert validation(found) == ("ROOTCA", [IDENTITY])
    found = cluster(rule("{tls: {mode: ISTIO_MUTUAL, sni: other, subjectAltNames: [spiffe://x/y]}}"))
    assert tls_context(found)["sni"] == "other"
    assert validation(found) == ("ROOTCA", ["spiffe://x/y"])


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
def test_tls_by_rule(
    settings: str, sni: str | None, certificate: list[str], roots: str, alt_names: list[str], options: Any
) -> None:
    found = cluster(rule(f"{{tls: {{{settings}}}}}"))
    assert tls_context(found).get("sni") == sni
    assert secrets(found) == certificate
    assert validation(found) == (roots, alt_names)
    assert http_options(found).get("upstreamHttpProtocolOptions") == options
    assert "alpnProtocols" not in tls_context(found)["commonTlsContext"]
    assert tls_context(cluster(rule(f"{{tls: {{{settings}}}}}"), port=90))["commonTlsContext"]["alpnProtocols"] == [
        "h2"
    ]


SIMPLE, OFF = "tls: {mode: SIMPLE, sni: x.com}", "tls: {mode: DISABLE}"
OWN = "tls: {mode: SIMPLE, sni: own.com}"


@pytest.mark.parametrize(
    ("policy", "subset", "of_rule", "of_subset"),
    [  # the SNI of each, None for plain text
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
def test_tls_of_a_subset_comes_before_that_of_its_rule(
    policy: str, subset: str, of_rule: str | None, of_subset: str | None
) -> None:
    objects = rule(f"{{{policy}}}", f"[{{name: v1{', trafficPolicy: {' + subset + '}' if subset else ''}}}]")

    def sni(found: Any) -> str | None:
        return str(tls_context(found)["sni"]) if "transportSocket" in found else None

    assert sni(cluster(objects)) == of_rule
    assert sni(cluster(objects, subset="v1")) == of_subset


def test_names_of_a_service_entry() -> None:
    named = EXTERNAL + ", subjectAltNames: [ext.example.com, two.example.com]"
    found = cluster(
        entry(named) + rule("{tls: {mode: SIMPLE, sni: x.com}}", host="ext.example.com"), host="ext.example.com"
    )
    assert validation(found)[1] == ["ext.example.com", "two.example.com"]
    found = cluster(
        entry(named) + rule("{tls: {mode: SIMPLE, subjectAltNames: [own.com]}}", host="ext.example.com"),
        host="ext.example.com",
    )
    assert validation(found)[1] == ["own.com"]


def test_revoked_certificates() -> None:
    found = cluster(rule("{tls: {mode: SIMPLE, caCertificates: /ca, caCrl: /crl}}"))
    assert tls_context(found)["commonTlsContext"]["combinedValidationContext"]["defaultValidationContext"]["crl"] == {
        "filename": "/crl"
    }


SELECTOR = "workloadSelector: {matchLabels: {app: web}}"


@pytest.mark.parametrize(
    ("mode", "by", "more", "certificate", "roots"),
    [
        ("SIMPLE", ROUTER, "", [], "kubernetes://web-cacert"),
        ("MUTUAL", ROUTER, "", ["kubernetes://web"], "kubernetes://web-cacert"),
        ("SIMPLE", CLIENT, "", [], ""),
        ("MUTUAL", CLIENT, "", [], ""),
        ("MUTUAL", CLIENT, SELECTOR, ["kubernetes://web"], "kubernetes://web-cacert"),
    ],
)
def test_credentials(mode: str, by: Any, more: str, certificate: list[str], roots: str) -> None:
    found = cluster(rule(f"{{tls: {{mode: {mode}, credentialName: web}}}}", more=more), by=by)
    assert secrets(found) == certificate
    assert validation(found) == (roots, [])
    assert bool(tls_context(found)) is bool(roots)
    for config in tls_context(found).get("commonTlsContext", {}).get("tlsCertificateSdsSecretConfigs", ()):
        assert config["sdsConfig"] == {"ads": {}, "resourceApiVersion": "V3"}


def test_credentials_of_the_users_own_server() -> None:
    by = replace(ROUTER, metadata={**ROUTER.metadata, "credential": "true"})
    found = clusters(rule("{tls: {mode: MUTUAL, credentialName: 'sds://web'}}"), by=by)
    assert secrets(found[f"outbound|80||{HOST}"]) == ["sds://web"]
    assert found["sds-external"]["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"]["pipe"][
        "path"
    ].endswith("/socket")
    assert "sds-external" not in clusters(by=ROUTER)


def test_files_of_the_users_own_server() -> None:
    found = cluster(rule("{tls: {mode: SIMPLE, caCertificates: /ca}}"), by=with_metadata(**{"file-credential": "true"}))
    config = tls_context(found)["commonTlsContext"]["combinedValidationContext"]["validationContextSdsSecretConfig"]
    assert config["sdsConfig"]["apiConfigSource"]["grpcServices"][0]["envoyGrpc"]["clusterName"] == "sds-files-grpc"


# -- a proxy with certificate files of its own -----------------------------------------------------------------------------


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
def test_own_files(
    objects: str, host: str, certificate: str, roots: str, alt_names: list[str], sni: str | None
) -> None:
    found = cluster(objects, host=host, by=with_metadata(**FILES))
    assert "transportSocketMatches" not in found
    assert secrets(found) == [certificate]
    assert validation(found) == (roots, alt_names)
    assert tls_context(found).get("sni") == sni


def test_external_services_follow_the_rule_whatever_files_there_are() -> None:
    objects = entry(EXTERNAL + ", subjectAltNames: [peer]") + rule(
        "{tls: {mode: ISTIO_MUTUAL}}", host="ext.example.com"
    )
    found = cluster(objects, host="ext.example.com", by=with_metadata(**FILES))
    assert secrets(found) == ["default"]
    assert validation(found) == ("ROOTCA", [])
    assert tls_context(found)["sni"] == "outbound|80||ext.example.com"
    assert validation(cluster(objects, host="ext.example.com"))[1] == ["peer"]


def test_own_files_everywhere() -> None:
    objects = entry(EXTERNAL) + rule(
        "{tls: {mode: MUTUAL, clientCertificate: /x, privateKey: /y}}", host="ext.example.com"
    )
    environ = {"PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES": "false"}
    found = cluster(objects, host="ext.example.com", by=with_metadata(**FILES), environ=environ)
    assert secrets(found) == ["file-cert:/c.pem~/k.pem"]


# -- the mesh's word -------------------------------------------------------------------------------------------------------


def test_tls_defaults_are_for_tls_of_rules() -> None:
    mesh = "tlsDefaults: {cipherSuites: [ECDHE-RSA-AES256-GCM-SHA384], ecdhCurves: [P-256]}"
    parameters = {**VERSIONS, "cipherSuites": ["ECDHE-RSA-AES256-GCM-SHA384"], "ecdhCurves": ["P-256"]}
    assert tls_context(cluster(rule("{tls: {mode: SIMPLE}}"), mesh=mesh))["commonTlsContext"]["tlsParams"] == parameters
    assert tls_context(cluster(mesh=mesh))["commonTlsContext"]["tlsParams"] == VERSIONS


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("fips-140-2", {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_2"}),
        ("fips-140-3", {**VERSIONS, "compliancePolicies": ["FIPS_202205"]}),
        ("something", VERSIONS),
    ],
)
def test_compliance(policy: str, parameters: dict[str, Any]) -> None:
    for objects in ("", rule("{tls: {mode: SIMPLE}}")):
        assert (
            tls_context(cluster(objects, environ={"COMPLIANCE_POLICY": policy}))["commonTlsContext"]["tlsParams"]
            == parameters
        )


def test_metadata_exchange_may_be_left_out_of_alpn() -> None:
    assert tls_context(cluster(environ={"PILOT_DISABLE_MX_ALPN": "true"}))["commonTlsContext"]["alpnProtocols"] == [
        "istio"
    ]


# -- PROXY protocol --------------------------------------------------------------------------------------------------------


def wrapped(socket: dict[str, Any]) -> tuple[str, str, str]:
    config = socket["typedConfig"]
    return (
        socket["name"].rpartition(".")[2],
        config["config"].get("version", "V1"),
        config["transportSocket"]["name"].rpartition(".")[2],
    )


def test_proxy_protocol_wraps_every_socket() -> None:
    found = cluster(rule("{proxyProtocol: {version: V2}}"))
    assert [wrapped(m["transportSocket"]) for m in found["transportSocketMatches"]] == [
        ("upstream_proxy_protocol", "V2", "tls"),
        ("upstream_proxy_protocol", "V2", "raw_buffer"),
    ]
    secured = cluster(rule("{proxyProtocol: {version: V1}, tls: {mode: SIMPLE}}"))
    assert wrapped(secured["transportSocket"]) == ("upstream_proxy_protocol", "V1", "tls")
    plain = cluster(rule("{proxyProtocol: {version: V1}, tls: {mode: DISABLE}}"))
    assert wrapped(plain["transportSocket"]) == ("upstream_proxy_protocol", "V1", "raw_buffer")


def test_a_rule_for_other_workloads_is_not_for_this_one() -> None:
    other = proxy("sidecar", "db-0", "shop", "10.0.0.3", {"app": "db"})
    objects = rule("{tls: {mode: SIMPLE}}", more=SELECTOR)
    assert "transportSocket" in cluster(objects)
    assert "transportSocket" not in cluster(objects, by=other)


@pytest.mark.parametrize(
    ("said", "matches"),
    [
        ("DISABLE", ["hbone", "tlsMode-disabled"]),
        ("SIMPLE", ["hbone", "user"]),
        ("ISTIO_MUTUAL", ["hbone", "tlsMode-istio"]),
    ],
)
def test_what_there_is_beside_a_tunnel_is_as_the_rule_says(said: str, matches: list[str]) -> None:
    found = cluster(
        rule(f"{{tls: {{mode: {said}}}}}"),
        environ={"PILOT_ENABLE_AMBIENT": "true", "PILOT_ENABLE_SENDING_HBONE": "true"},
    )
    assert [match["name"] for match in found["transportSocketMatches"]] == matches
