"""Gateway API listeners: tunnel listeners, SNI passthrough and error messages."""

from __future__ import annotations

import pytest

from pilot.config.gateway_api.gateway import Listener, ListenerTLSConfig
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.object import ObjectKey
from pilot.lib.labels import NETWORK
from pilot.mesh.gateway_api.gateways import ListenerKey
from pilot.mesh.gateway_api.listener_tls import is_auto_passthrough
from pilot.mesh.gateway_api.listeners import gateway_listener
from pilot.mesh.status.gateway_status import gateway_status
from testing.edits.gateway_objects import gateway_object
from testing.mesh.objects import Plain, world
from testing.security.credentials import Authority, config_map, data_secret, tls_secret

KEY = ObjectKey("a", "gw")
HTTP = "{name: http, port: 80, protocol: HTTP}"
EAST_WEST = {"PILOT_ENABLE_AMBIENT": "true", "AMBIENT_ENABLE_MULTI_NETWORK": "true"}


def gateway(listener: str, class_name: str = "istio", more: str = "") -> Plain:
    return gateway_object("Gateway", "gw", f"gatewayClassName: {class_name}, listeners: [{listener}]{more}", "a")


def listener_condition(*objects: Plain, type_: str = "Accepted") -> tuple[str, str]:
    """Return the reason and message of a condition of the last listener."""
    status = gateway_status(world(*objects, **EAST_WEST).mesh, KEY)
    assert status is not None
    (condition,) = [c for c in status.listeners[-1].conditions if c.type == type_]
    return condition.reason, condition.message


@pytest.mark.parametrize(
    ("class_name", "listener", "reason"),
    [
        ("istio-east-west", "port: 15008, protocol: HBONE, tls: {mode: Terminate}", "Accepted"),
        ("istio-east-west", "port: 15443, protocol: TLS, tls: {mode: Passthrough}", "Accepted"),
        ("istio-east-west", "port: 15008, protocol: HBONE, tls: {mode: Passthrough}", "UnsupportedProtocol"),
        ("istio-east-west", "port: 15009, protocol: HBONE, tls: {mode: Terminate}", "UnsupportedProtocol"),
        ("istio-east-west", "port: 15008, protocol: TLS, tls: {mode: Passthrough}", "UnsupportedProtocol"),
        ("istio-east-west", "port: 80, protocol: HTTP", "UnsupportedProtocol"),
        ("istio-waypoint", "port: 15008, protocol: HBONE", "Accepted"),
        ("istio-waypoint", "port: 80, protocol: HTTP", "UnsupportedProtocol"),
    ],
)
def test_tunnel_listeners_require_protocol_and_port(class_name: str, listener: str, reason: str) -> None:
    assert listener_condition(gateway(f"{{name: l, {listener}}}", class_name))[0] == reason


def test_ca_certificate_ref_not_permitted_is_named() -> None:
    authority = Authority()
    ref = "{group: '', kind: ConfigMap, name: roots, namespace: b}"
    condition = listener_condition(
        tls_secret("cert", authority.issue("x.example.com"), "a"),
        config_map("roots", {"ca.crt": authority.pem.decode()}, "b"),
        gateway(
            "{name: l, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}",
            "istio",
            f", tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{ref}]}}}}}}}}",
        ),
        type_="ResolvedRefs",
    )
    assert condition[0] == "RefNotPermitted"
    assert condition[1].startswith("caCertificateRef b/roots not accessible to a Gateway in namespace 'a'")


@pytest.mark.parametrize(
    ("labels", "port", "tls", "passes"),
    [
        ({NETWORK: "n"}, 15443, ListenerTLSConfig(), True),
        ({NETWORK: "n"}, 443, ListenerTLSConfig(), False),
        ({NETWORK: "n", "networking.istio.io/gatewayPort": "443"}, 443, ListenerTLSConfig(), True),
        ({}, 15443, ListenerTLSConfig(), False),
        ({}, 443, ListenerTLSConfig(options={"gateway.istio.io/listener-protocol": "auto-passthrough"}), True),
        ({NETWORK: "n"}, 15443, None, False),
    ],
)
def test_network_gateway_uses_auto_passthrough_on_its_port(
    labels: dict[str, str], port: int, tls: ListenerTLSConfig | None, passes: bool
) -> None:
    assert is_auto_passthrough(labels, Listener(port=port, protocol="TLS", tls=tls)) == passes


@pytest.mark.parametrize(("position", "exists"), [(0, True), (1, False)])
def test_removed_listener_is_none(position: int, exists: bool) -> None:
    assert (
        gateway_listener(world(gateway(HTTP)).mesh, ListenerKey(KUBERNETES_GATEWAY.id, KEY, position)) is not None
    ) == exists


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("service: x.Y", {"prefix": "/x.Y/"}),
        ("service: x.Y, method: Z", {"exact": "/x.Y/Z"}),
        ("method: Z", {"regex": "/[^/]+/Z"}),
        ("type: RegularExpression, service: 'x.*', method: 'Z|W'", {"regex": "/x.*/Z|W"}),
        ("type: RegularExpression, service: 'x.*'", {"regex": "/x.*/.+"}),
    ],
)
def test_grpc_route_match_becomes_a_uri_match(method: str, uri: dict[str, str]) -> None:
    rules = f"rules: [{{matches: [{{method: {{{method}}}}}]}}]"
    mesh = world(gateway(HTTP), gateway_object("GRPCRoute", "calls", f"parentRefs: [{{name: gw}}], {rules}", "a")).mesh
    rows = [row for key in VIRTUAL_SERVICE.all_keys(mesh) if (row := VIRTUAL_SERVICE.get(mesh, key)) is not None]
    ((match,),) = [[route.match[0].uri for route in row.spec.http] for row in rows]
    assert match is not None
    assert {form: value for form in ("exact", "prefix", "regex") if (value := getattr(match, form))} == uri


@pytest.mark.parametrize(
    ("kind", "credential"),
    [("ConfigMap", "configmap://a/roots-cacert"), ("Secret", "kubernetes-gateway://a/roots-cacert")],
)
def test_client_ca_credential_name_follows_the_ref_kind(kind: str, credential: str) -> None:
    authority = Authority()
    roots = {"ca.crt": authority.pem.decode()}
    mesh = world(
        tls_secret("cert", authority.issue("x.example.com"), "a"),
        config_map("roots", roots, "a"),
        data_secret("roots", {name: text.encode() for name, text in roots.items()}, "a"),
        gateway(
            "{name: l, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}",
            "istio",
            f", tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{{group: '', kind: {kind}, name: roots}}]}}}}}}}}",
        ),
    ).mesh
    listener = gateway_listener(mesh, ListenerKey(KUBERNETES_GATEWAY.id, KEY, 0))
    assert listener is not None
    assert listener.server.tls.ca_cert_credential_name == credential
