"""Status of invalid and partly valid Gateway API objects, as specified."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pilot.config.group_kind import GATEWAY_API, GroupKind
from pilot.config.kinds.gateway_api import GATEWAY_CLASS, HTTP_ROUTE
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.debug.pages.statuses import statusz
from pilot.mesh.analysis.status import status_problems
from pilot.mesh.gateway_api.gateway_classes import gateway_class
from pilot.mesh.lowering.gateway_api.routes import RouteKey
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.status.gateway_status import class_status, gateway_status, listener_set_status
from pilot.mesh.status.object_status import object_status, objects_with_status
from pilot.mesh.status.plain_status import plain_status
from pilot.mesh.status.policy_status import backend_tls_status, traffic_policy_status
from pilot.mesh.status.route_status import route_status
from testing.edits.gateway_objects import gateway_object
from testing.mesh.debug_server import sources
from testing.mesh.objects import Plain, at, endpoint_slice, make
from testing.mesh.world import World, rows_of
from testing.security.credentials import Authority, config_map, data_secret, tls_secret

AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("x.example.com")
FIXED: tuple[Plain, ...] = (
    make("Namespace", "a", labels="{team: blue}"),
    make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}", "a"),
    make("Service", "web", "{clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}", "b"),
    make(
        "Service",
        "front",
        "{clusterIP: 10.96.0.3, selector: {app: f}, ports: [{name: http, port: 80, targetPort: 8080}, {name: tls, port: 443}]}",
        "a",
    ),
    endpoint_slice("front", at("10.1.0.1"), ports="[{name: http, port: 8080}, {name: tls, port: 443}]"),
    make("Service", "lonely", "{clusterIP: 10.96.0.4, ports: [{name: http, port: 80}]}", "a"),
    make("Service", "awaiting", "{type: LoadBalancer, clusterIP: 10.96.0.5, ports: [{name: http, port: 80}]}", "a"),
    endpoint_slice("awaiting", at("10.1.0.2"), ports="[{name: http, port: 80}]"),
    make("Service", "outside", "{type: LoadBalancer, clusterIP: 10.96.0.6, ports: [{name: http, port: 80}]}", "a")
    | {"status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}}},
    endpoint_slice("outside", at("10.1.0.3"), ports="[{name: http, port: 80}]"),
    tls_secret("cert", ISSUED, "a"),
    tls_secret("cert", ISSUED, "b"),
    data_secret("bad", {"tls.crt": b"none", "tls.key": b"none"}, "a"),
    config_map("roots", {"ca.crt": AUTHORITY.pem.decode()}, "a"),
    config_map("empty", {"other": "x"}, "a"),
    config_map("params", {"service": "{}"}, "a"),
    make(
        "ServiceEntry",
        "mail",
        "{hosts: [mail.example.net], ports: [{number: 443, name: tls, protocol: TLS}], resolution: DNS}",
        "a",
    ),
)
ADDRESS = "gatewayClassName: istio, addresses: [{type: Hostname, value: front}]"
HTTP = "{name: http, port: 80, protocol: HTTP}"
WIDE = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"


def https_gateway_spec(tls: str, more: str = "") -> str:
    return f"{ADDRESS}, listeners: [{{name: l, port: 443, protocol: HTTPS, tls: {tls}}}]{more}"


def frontend(ref: str, mode: str = "") -> str:
    return f", tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{ref}]{mode}}}}}}}}}"


def gateway_spec(*listeners: str) -> str:
    return f"{ADDRESS}, listeners: [{', '.join(listeners)}]"


CERT = "{certificateRefs: [{name: cert}]}"
ROOTS = "{group: '', kind: ConfigMap, name: roots}"
GATEWAYS = [  # spec, condition of the Gateway: type, whether it holds, reason
    (gateway_spec(HTTP), "Accepted", True, "Accepted"),
    (gateway_spec(HTTP), "Programmed", True, "Programmed"),
    (gateway_spec(HTTP), "ResolvedRefs", True, "ResolvedRefs"),
    (gateway_spec(HTTP, "{name: u, port: 53, protocol: UDP}"), "Accepted", True, "ListenersNotValid"),
    (gateway_spec("{name: u, port: 53, protocol: UDP}"), "Accepted", False, "ListenersNotValid"),
    (
        "gatewayClassName: istio, addresses: [{type: NamedAddress, value: x}, {type: Hostname, value: front}], listeners: ["
        + HTTP
        + "]",
        "Accepted",
        False,
        "UnsupportedAddress",
    ),
    (
        "gatewayClassName: istio, addresses: [{type: IPAddress, value: 1.1.1.1}, {type: IPAddress, value: 1.1.1.2}], listeners: ["
        + HTTP
        + "]",
        "Programmed",
        False,
        "UnsupportedAddress",
    ),
    (f"gatewayClassName: istio, listeners: [{HTTP}]", "Programmed", False, "AddressNotUsable"),
    (
        f"gatewayClassName: istio, addresses: [{{type: Hostname, value: ghost}}], listeners: [{HTTP}]",
        "Programmed",
        False,
        "AddressNotUsable",
    ),
    (
        f"gatewayClassName: istio, addresses: [{{type: Hostname, value: lonely}}], listeners: [{HTTP}]",
        "Programmed",
        False,
        "AddressNotAssigned",
    ),
    (
        f"gatewayClassName: istio, addresses: [{{type: Hostname, value: awaiting}}], listeners: [{HTTP}]",
        "Programmed",
        False,
        "AddressNotAssigned",
    ),
    (gateway_spec("{name: w, port: 8080, protocol: HTTP}"), "Programmed", False, "AddressNotUsable"),
    (gateway_spec("{name: w, port: 81, protocol: HTTP}"), "Programmed", False, "AddressNotUsable"),
    (
        f"{gateway_spec(HTTP)}, infrastructure: {{parametersRef: {{group: '', kind: ConfigMap, name: params}}}}",
        "Accepted",
        True,
        "Accepted",
    ),
    (
        f"{gateway_spec(HTTP)}, infrastructure: {{parametersRef: {{group: '', kind: ConfigMap, name: ghost}}}}",
        "Accepted",
        False,
        "InvalidParameters",
    ),
    (
        f"{gateway_spec(HTTP)}, infrastructure: {{parametersRef: {{group: apps, kind: Deployment, name: x}}}}",
        "Accepted",
        False,
        "InvalidParameters",
    ),
    (
        f"{gateway_spec(HTTP)}, tls: {{backend: {{clientCertificateRef: {{name: cert}}}}}}",
        "ResolvedRefs",
        True,
        "ResolvedRefs",
    ),
    (
        f"{gateway_spec(HTTP)}, tls: {{backend: {{clientCertificateRef: {{name: ghost}}}}}}",
        "ResolvedRefs",
        False,
        "InvalidClientCertificateRef",
    ),
    (
        f"{gateway_spec(HTTP)}, tls: {{backend: {{clientCertificateRef: {{name: bad}}}}}}",
        "ResolvedRefs",
        False,
        "InvalidClientCertificateRef",
    ),
    (
        f"{gateway_spec(HTTP)}, tls: {{backend: {{clientCertificateRef: {{kind: ConfigMap, name: roots}}}}}}",
        "ResolvedRefs",
        False,
        "InvalidClientCertificateRef",
    ),
    (
        f"{gateway_spec(HTTP)}, tls: {{backend: {{clientCertificateRef: {{name: cert, namespace: b}}}}}}",
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    (
        https_gateway_spec(CERT, frontend(ROOTS, ", mode: AllowInsecureFallback")),
        "InsecureFrontendValidationMode",
        True,
        "ConfigurationChanged",
    ),
    ("gatewayClassName: istio-remote, listeners: [" + HTTP + "]", "Programmed", True, "Programmed"),
    ("gatewayClassName: istio-remote, listeners: [" + HTTP + "]", "Accepted", True, "Accepted"),
]
LISTENERS = [  # spec, condition of its last listener
    (gateway_spec(HTTP), "Accepted", True, "Accepted"),
    (gateway_spec(HTTP), "Conflicted", False, "NoConflicts"),
    (gateway_spec(HTTP), "Programmed", True, "Programmed"),
    (gateway_spec(HTTP, "{name: again, port: 80, protocol: HTTP}"), "Conflicted", True, "HostnameConflict"),
    (gateway_spec(HTTP, "{name: again, port: 80, protocol: HTTP}"), "Accepted", False, "HostnameConflict"),
    (
        gateway_spec(HTTP, "{name: other, port: 80, protocol: HTTP, hostname: x.com}"),
        "Conflicted",
        False,
        "NoConflicts",
    ),
    (gateway_spec(HTTP, "{name: raw, port: 80, protocol: TCP}"), "Conflicted", True, "ProtocolConflict"),
    (
        gateway_spec("{name: one, port: 90, protocol: TCP}", "{name: two, port: 90, protocol: TCP}"),
        "Conflicted",
        True,
        "ProtocolConflict",
    ),
    (
        gateway_spec(HTTP, "{name: names, port: 80, protocol: TLS, tls: {mode: Passthrough}}"),
        "Programmed",
        False,
        "ProtocolConflict",
    ),
    (gateway_spec("{name: u, port: 53, protocol: UDP}"), "Accepted", False, "UnsupportedProtocol"),
    (gateway_spec("{name: l, port: 80, protocol: http}"), "Accepted", False, "UnsupportedProtocol"),
    (gateway_spec("{name: l, port: 15008, protocol: HBONE}"), "Accepted", False, "UnsupportedProtocol"),
    (
        gateway_spec("{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}"),
        "ResolvedRefs",
        False,
        "InvalidRouteKinds",
    ),
    (
        gateway_spec("{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: Ghost}]}}"),
        "ResolvedRefs",
        False,
        "InvalidRouteKinds",
    ),
    (
        gateway_spec("{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{group: x.io, kind: HTTPRoute}]}}"),
        "ResolvedRefs",
        False,
        "InvalidRouteKinds",
    ),
    (https_gateway_spec(CERT), "ResolvedRefs", True, "ResolvedRefs"),
    (https_gateway_spec("{certificateRefs: [{name: ghost}]}"), "ResolvedRefs", False, "InvalidCertificateRef"),
    (https_gateway_spec("{certificateRefs: [{name: ghost}]}"), "Programmed", False, "Invalid"),
    (https_gateway_spec("{certificateRefs: [{name: bad}]}"), "ResolvedRefs", False, "InvalidCertificateRef"),
    (
        https_gateway_spec("{certificateRefs: [{kind: ConfigMap, name: roots}]}"),
        "ResolvedRefs",
        False,
        "InvalidCertificateRef",
    ),
    (
        https_gateway_spec("{certificateRefs: [{group: x.io, kind: Secret, name: cert}]}"),
        "ResolvedRefs",
        False,
        "InvalidCertificateRef",
    ),
    (
        https_gateway_spec("{certificateRefs: [{name: cert}, {name: cert}, {name: cert}]}"),
        "ResolvedRefs",
        False,
        "InvalidCertificateRef",
    ),
    (https_gateway_spec("{certificateRefs: []}"), "ResolvedRefs", False, "InvalidCertificateRef"),
    (https_gateway_spec("{certificateRefs: [{name: cert}, {name: ghost}]}"), "ResolvedRefs", True, "ResolvedRefs"),
    (https_gateway_spec("{certificateRefs: [{name: cert, namespace: b}]}"), "ResolvedRefs", False, "RefNotPermitted"),
    (https_gateway_spec("{certificateRefs: [{name: ghost, namespace: b}]}"), "ResolvedRefs", False, "RefNotPermitted"),
    (https_gateway_spec(CERT, frontend(ROOTS)), "Accepted", True, "Accepted"),
    (
        https_gateway_spec(CERT, frontend("{group: '', kind: ConfigMap, name: ghost}")),
        "ResolvedRefs",
        False,
        "InvalidCACertificateRef",
    ),
    (
        https_gateway_spec(CERT, frontend("{group: '', kind: ConfigMap, name: ghost}")),
        "Accepted",
        False,
        "NoValidCACertificate",
    ),
    (
        https_gateway_spec(CERT, frontend("{group: '', kind: ConfigMap, name: empty}")),
        "ResolvedRefs",
        False,
        "InvalidCACertificateRef",
    ),
    (
        https_gateway_spec(CERT, frontend("{group: '', kind: Service, name: web}")),
        "ResolvedRefs",
        False,
        "InvalidCACertificateKind",
    ),
    (
        https_gateway_spec(CERT, frontend("{group: '', kind: ConfigMap, name: roots, namespace: b}")),
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    (https_gateway_spec(CERT, frontend(f"{ROOTS}, {ROOTS}")), "ResolvedRefs", False, "InvalidCACertificateRef"),
]
GOOD = f"{ADDRESS}, listeners: [{WIDE}, {{name: narrow, port: 81, protocol: HTTP, hostname: '*.x.com'}}, {{name: sql, port: 90, protocol: TCP}}, {{name: picky, port: 82, protocol: HTTP, allowedRoutes: {{namespaces: {{from: Selector, selector: {{matchLabels: {{team: red}}}}}}}}}}]"
WEB = "rules: [{backendRefs: [{name: web, port: 80}]}]"


def at_gateway(more: str = "", rules: str = WEB) -> str:
    return f"parentRefs: [{{name: gw{more}}}], {rules}"


ROUTES = [  # kind, spec, condition
    ("HTTPRoute", at_gateway(), "Accepted", True, "Accepted"),
    ("HTTPRoute", at_gateway(), "ResolvedRefs", True, "ResolvedRefs"),
    ("HTTPRoute", at_gateway(", sectionName: ghost"), "Accepted", False, "NoMatchingParent"),
    ("HTTPRoute", at_gateway(", port: 7"), "Accepted", False, "NoMatchingParent"),
    (
        "HTTPRoute",
        at_gateway(", sectionName: narrow") + ", hostnames: [y.org]",
        "Accepted",
        False,
        "NoMatchingListenerHostname",
    ),
    ("HTTPRoute", at_gateway(", sectionName: narrow") + ", hostnames: [a.x.com]", "Accepted", True, "Accepted"),
    ("HTTPRoute", at_gateway(", sectionName: picky"), "Accepted", False, "NotAllowedByListeners"),
    ("HTTPRoute", at_gateway(", sectionName: sql"), "Accepted", False, "NotAllowedByListeners"),
    ("TCPRoute", at_gateway(", sectionName: http"), "Accepted", False, "NotAllowedByListeners"),
    ("TCPRoute", at_gateway(", sectionName: sql"), "Accepted", True, "Accepted"),
    ("TLSRoute", at_gateway(", sectionName: sql"), "Accepted", False, "NotAllowedByListeners"),
    ("GRPCRoute", at_gateway(), "Accepted", True, "Accepted"),
    (
        "HTTPRoute",
        at_gateway(rules="rules: [{backendRefs: [{name: ghost, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "BackendNotFound",
    ),
    ("HTTPRoute", at_gateway(rules="rules: [{backendRefs: [{name: ghost, port: 80}]}]"), "Accepted", True, "Accepted"),
    (
        "HTTPRoute",
        at_gateway(rules="rules: [{backendRefs: [{name: web, namespace: b, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    (
        "HTTPRoute",
        at_gateway(rules="rules: [{backendRefs: [{name: ghost, namespace: b, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    (
        "HTTPRoute",
        at_gateway(rules="rules: [{backendRefs: [{group: x.io, kind: Bucket, name: web, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "InvalidKind",
    ),
    (
        "HTTPRoute",
        at_gateway(rules="rules: [{backendRefs: [{group: networking.istio.io, kind: Hostname, name: web}]}]"),
        "ResolvedRefs",
        False,
        "InvalidDestination",
    ),
    (
        "HTTPRoute",
        at_gateway(rules="rules: [{backendRefs: [{name: web.a, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "InvalidDestination",
    ),
    (
        "HTTPRoute",
        at_gateway(rules="rules: [{filters: [{type: ExtensionRef}], backendRefs: [{name: web, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "InvalidFilter",
    ),
    (
        "HTTPRoute",
        at_gateway(rules="rules: [{backendRefs: [{name: web, port: 80, filters: [{type: URLRewrite}]}]}]"),
        "ResolvedRefs",
        False,
        "InvalidFilter",
    ),
    (
        "HTTPRoute",
        at_gateway(
            rules='rules: [{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x, value: "a\\nb"}]}}]}]'
        ),
        "ResolvedRefs",
        False,
        "InvalidFilter",
    ),
    (
        "HTTPRoute",
        at_gateway(
            rules="rules: [{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: ghost, port: 80}}}], backendRefs: [{name: web, port: 80}]}]"
        ),
        "ResolvedRefs",
        False,
        "BackendNotFound",
    ),
    (
        "GRPCRoute",
        at_gateway(rules="rules: [{matches: [{method: {}}]}]"),
        "ResolvedRefs",
        False,
        "InvalidConfiguration",
    ),
    (
        "GRPCRoute",
        at_gateway(rules="rules: [{filters: [{type: URLRewrite}], backendRefs: [{name: web, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "InvalidFilter",
    ),
    (
        "TCPRoute",
        at_gateway(", sectionName: sql", "rules: [{backendRefs: [{name: ghost, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "BackendNotFound",
    ),
    ("HTTPRoute", f"parentRefs: [{{name: web, kind: Service, group: ''}}], {WEB}", "Accepted", True, "Accepted"),
    (
        "HTTPRoute",
        f"parentRefs: [{{name: ghost, kind: Service, group: ''}}], {WEB}",
        "Accepted",
        False,
        "NoMatchingParent",
    ),
    (
        "HTTPRoute",
        f"parentRefs: [{{name: ghost, kind: ServiceEntry, group: networking.istio.io}}], {WEB}",
        "Accepted",
        False,
        "NoMatchingParent",
    ),
    (
        "HTTPRoute",
        "parentRefs: [{name: web, kind: Service, group: ''}], rules: [{backendRefs: [{name: web, namespace: b, port: 80}]}]",
        "ResolvedRefs",
        True,
        "ResolvedRefs",
    ),
    ("HTTPRoute", "parentRefs: [{name: gw}, {name: gw, sectionName: ghost}], " + WEB, "Accepted", True, "Accepted"),
    (
        "HTTPRoute",
        at_gateway(
            rules="rules: [{backendRefs: [{name: ghost, port: 80}]}, {matches: [{path: {value: /x}}], backendRefs: [{name: web, port: 80}]}]"
        ),
        "ResolvedRefs",
        False,
        "BackendNotFound",
    ),
    (
        "HTTPRoute",
        at_gateway(
            rules="rules: [{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, namespace: b, port: 80}}}], backendRefs: [{name: web, port: 80}]}]"
        ),
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    (
        "GRPCRoute",
        at_gateway(rules="rules: [{backendRefs: [{name: ghost, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "BackendNotFound",
    ),
    (
        "GRPCRoute",
        at_gateway(rules="rules: [{backendRefs: [{name: web, namespace: b, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    (
        "GRPCRoute",
        at_gateway(rules="rules: [{backendRefs: [{group: networking.istio.io, kind: Hostname, name: web}]}]"),
        "ResolvedRefs",
        False,
        "InvalidDestination",
    ),
    ("GRPCRoute", at_gateway(", sectionName: ghost"), "Accepted", False, "NoMatchingParent"),
    ("GRPCRoute", at_gateway(", sectionName: sql"), "Accepted", False, "NotAllowedByListeners"),
    (
        "TCPRoute",
        at_gateway(", sectionName: sql", "rules: [{backendRefs: [{group: x.io, kind: Bucket, name: web, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "InvalidKind",
    ),
    (
        "TCPRoute",
        at_gateway(", sectionName: sql", "rules: [{backendRefs: [{name: web, namespace: b, port: 80}]}]"),
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    ("TCPRoute", at_gateway(", port: 7"), "Accepted", False, "NoMatchingParent"),
    ("TLSRoute", at_gateway(", sectionName: http"), "Accepted", False, "NotAllowedByListeners"),
]
POLICIES = [  # spec, condition of its last target
    (
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {wellKnownCACertificates: System, hostname: x}",
        "Accepted",
        True,
        "Accepted",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: ghost}], validation: {wellKnownCACertificates: System, hostname: x}",
        "Accepted",
        False,
        "TargetNotFound",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: web, sectionName: ghost}], validation: {wellKnownCACertificates: System, hostname: x}",
        "Accepted",
        False,
        "TargetNotFound",
    ),
    (
        "targetRefs: [{group: apps, kind: Deployment, name: web}], validation: {wellKnownCACertificates: System, hostname: x}",
        "Accepted",
        False,
        "TargetNotFound",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {wellKnownCACertificates: Mine, hostname: x}",
        "Accepted",
        False,
        "Invalid",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: roots}], hostname: x}",
        "ResolvedRefs",
        True,
        "ResolvedRefs",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: ghost}], hostname: x}",
        "ResolvedRefs",
        False,
        "InvalidCACertificateRef",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: ghost}], hostname: x}",
        "Accepted",
        False,
        "NoValidCACertificate",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: empty}], hostname: x}",
        "ResolvedRefs",
        False,
        "InvalidCACertificateRef",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {caCertificateRefs: [{group: '', kind: Secret, name: cert}], hostname: x}",
        "ResolvedRefs",
        False,
        "InvalidKind",
    ),
    (
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {caCertificateRefs: [{group: x.io, kind: Store, name: x}], hostname: x}",
        "ResolvedRefs",
        False,
        "InvalidKind",
    ),
    (
        "targetRefs: [{group: networking.istio.io, kind: ServiceEntry, name: mail, sectionName: tls}], validation: {wellKnownCACertificates: System, hostname: x}",
        "Accepted",
        True,
        "Accepted",
    ),
    (
        "targetRefs: [{group: networking.istio.io, kind: ServiceEntry, name: ghost}], validation: {wellKnownCACertificates: System, hostname: x}",
        "Accepted",
        False,
        "TargetNotFound",
    ),
]
SETS = [  # allowed namespaces, spec, condition
    ("{from: All}", "listeners: [{name: s, port: 83, protocol: HTTP}]", "Accepted", True, "Accepted"),
    ("{from: None}", "listeners: [{name: s, port: 83, protocol: HTTP}]", "Accepted", False, "NotAllowed"),
    (
        "{from: Selector, selector: {matchLabels: {team: red}}}",
        "listeners: [{name: s, port: 83, protocol: HTTP}]",
        "Programmed",
        False,
        "NotAllowed",
    ),
    ("{from: Same}", "listeners: [{name: s, port: 80, protocol: HTTP}]", "Accepted", False, "ListenersNotValid"),
    ("{from: Same}", "listeners: [{name: s, port: 80, protocol: HTTP}]", "Programmed", False, "ListenersNotValid"),
    ("{from: Same}", "listeners: [{name: s, protocol: TCP}]", "Accepted", False, "ListenersNotValid"),
    ("{from: Same}", "listeners: [{name: s, port: 83, protocol: UDP}]", "Accepted", False, "ListenersNotValid"),
]
KEY = ObjectKey("a", "x")


def world(*objects: Plain) -> World:
    harness = World(environ={"PILOT_ENABLE_ALPHA_GATEWAY_API": "true"})
    harness.set(rows_of((*FIXED, *objects)))
    return harness


def condition_of(conditions: tuple[StatusCondition, ...], type_: str) -> tuple[bool, str]:
    matches = [(c.status, c.reason) for c in conditions if c.type == type_]
    assert len(matches) == 1, conditions
    return matches[0]


@pytest.mark.parametrize(("spec", "type_", "holds", "reason"), GATEWAYS)
def test_gateway_conditions(spec: str, type_: str, holds: bool, reason: str) -> None:
    status = gateway_status(world(gateway_object("Gateway", "x", spec, "a")).mesh, KEY)
    assert status is not None
    assert condition_of(status.conditions, type_) == (holds, reason)


@pytest.mark.parametrize(("spec", "type_", "holds", "reason"), LISTENERS)
def test_listener_conditions(spec: str, type_: str, holds: bool, reason: str) -> None:
    status = gateway_status(world(gateway_object("Gateway", "x", spec, "a")).mesh, KEY)
    assert status is not None
    assert condition_of(status.listeners[-1].conditions, type_) == (holds, reason)


@pytest.mark.parametrize(("kind", "spec", "type_", "holds", "reason"), ROUTES)
def test_route_conditions(kind: str, spec: str, type_: str, holds: bool, reason: str) -> None:
    harness = world(gateway_object("Gateway", "gw", GOOD, "a"), gateway_object(kind, "x", spec, "a"))
    statuses = route_status(harness.mesh, RouteKey(GroupKind(GATEWAY_API, kind), *KEY))
    assert condition_of(statuses[0].conditions, type_) == (holds, reason)


@pytest.mark.parametrize(("spec", "type_", "holds", "reason"), POLICIES)
def test_backend_tls_policy_conditions(spec: str, type_: str, holds: bool, reason: str) -> None:
    statuses = backend_tls_status(world(gateway_object("BackendTLSPolicy", "x", spec, "a")).mesh, KEY)
    assert condition_of(statuses[-1].conditions, type_) == (holds, reason)


@pytest.mark.parametrize(("allowed", "spec", "type_", "holds", "reason"), SETS)
def test_listener_set_conditions(allowed: str, spec: str, type_: str, holds: bool, reason: str) -> None:
    gateway = gateway_object(
        "Gateway",
        "gw",
        f"{gateway_spec(HTTP, '{name: more, port: 443, protocol: HTTP}')}, allowedListeners: {{namespaces: {allowed}}}",
        "a",
    )
    status = listener_set_status(
        world(gateway, gateway_object("ListenerSet", "x", f"parentRef: {{name: gw}}, {spec}", "a")).mesh, KEY
    )
    assert status is not None
    assert condition_of(status.conditions, type_) == (holds, reason)


def test_tables_cover_enough_invalid_objects() -> None:
    tables: tuple[list[Any], ...] = (GATEWAYS, LISTENERS, ROUTES, POLICIES, SETS)
    invalid = {str(row[:-3]) for table in tables for row in table if not row[-2] and row[-1] != "NoConflicts"}
    assert len(invalid) >= 80, "objects, each of which may have several conditions"
    assert sum(len(table) for table in tables) >= 110


def test_older_policy_for_a_target_wins() -> None:
    spec = "targetRefs: [{group: '', kind: Service, name: web}], validation: {wellKnownCACertificates: System, hostname: x}"
    harness = world(
        gateway_object("BackendTLSPolicy", "old", spec, "a", 1), gateway_object("BackendTLSPolicy", "x", spec, "a", 2)
    )
    assert condition_of(backend_tls_status(harness.mesh, KEY)[0].conditions, "Accepted") == (False, "Conflicted")
    assert condition_of(backend_tls_status(harness.mesh, ObjectKey("a", "old"))[0].conditions, "Accepted") == (
        True,
        "Accepted",
    )


def test_ignored_policy_reports_ignored() -> None:
    ignored = {"annotations": {"istio.io/ignore-policy-attachment": "true"}}
    tls = gateway_object(
        "BackendTLSPolicy",
        "x",
        "targetRefs: [{group: '', kind: Service, name: web}], validation: {hostname: x}",
        "a",
        **ignored,
    )
    traffic = gateway_object(
        "XBackendTrafficPolicy",
        "x",
        "targetRefs: [{group: '', kind: Service, name: web}]",
        "a",
        api="gateway.networking.x-k8s.io/v1alpha1",
        **ignored,
    )
    harness = world(tls, traffic)
    assert condition_of(backend_tls_status(harness.mesh, KEY)[0].conditions, "Accepted") == (False, "Ignored")
    assert condition_of(traffic_policy_status(harness.mesh, KEY)[0].conditions, "Accepted") == (False, "Ignored")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "Configuration is valid"),
        (
            ", sessionPersistence: {}",
            "Configuration is valid, but Istio does not support the following fields: sessionPersistence",
        ),
    ],
)
def test_unsupported_policy_fields_are_reported(more: str, message: str) -> None:
    spec = f"targetRefs: [{{group: '', kind: Service, name: web}}]{more}"
    harness = world(gateway_object("XBackendTrafficPolicy", "x", spec, "a", api="gateway.networking.x-k8s.io/v1alpha1"))
    assert [c.message for c in traffic_policy_status(harness.mesh, KEY)[0].conditions if c.type == "Accepted"] == [
        message
    ]


@pytest.mark.parametrize(
    ("parent", "message"), [(", sectionName: http", "Route was valid"), ("", "Route was valid, bound to 2 parents")]
)
def test_route_reports_the_number_of_listeners(parent: str, message: str) -> None:
    harness = world(
        gateway_object("Gateway", "gw", GOOD, "a"), gateway_object("HTTPRoute", "x", at_gateway(parent), "a")
    )
    statuses = route_status(harness.mesh, RouteKey(GroupKind(GATEWAY_API, "HTTPRoute"), *KEY))
    assert [c.message for c in statuses[0].conditions if c.type == "Accepted"] == [message]


@pytest.mark.parametrize(
    ("name", "is_accepted"),
    [("istio", True), ("istio-remote", True), ("mine", True), ("other", False), ("ghost", False)],
)
def test_gateway_class_is_accepted_by_controller(name: str, is_accepted: bool) -> None:
    harness = world()
    for class_name, controller in (("mine", "istio.io/gateway-controller"), ("other", "example.com/x")):
        harness.set(
            rows_of(
                [
                    yaml.safe_load(
                        f"{{apiVersion: {GATEWAY_API}/v1, kind: GatewayClass, metadata: {{name: {class_name}}}, spec: {{controllerName: {controller}}}}}"
                    )
                ]
            )
        )
    assert (class_status(harness.mesh, name) is not None) == is_accepted


def test_builtin_class_remains_when_an_object_names_another_controller() -> None:
    harness = world()
    harness.set(
        rows_of(
            [
                yaml.safe_load(
                    f"{{apiVersion: {GATEWAY_API}/v1, kind: GatewayClass, metadata: {{name: istio}}, spec: {{controllerName: example.com/x}}}}"
                )
            ]
        )
    )
    assert gateway_class(harness.mesh, "istio") is not None
    assert class_status(harness.mesh, "istio") is None


def test_class_of_gateways_at_the_edge_reports_supported_features() -> None:
    """The conformance suite of the Gateway API takes the features to test from this status."""
    harness = world()

    def features(name: str) -> list[str]:
        status = object_status(harness.mesh, ObjectRef(GATEWAY_CLASS.id, "", name))
        assert status is not None
        return [item["name"] for item in plain_status(status, GATEWAY_CLASS.id, "c").get("supportedFeatures", ())]

    names = features("istio")
    assert {"Gateway", "HTTPRouteCORS", "TLSRouteModeTerminate"} <= set(names)
    assert names == sorted(set(names)), "the specification requires alphabetical order"
    assert len(names) <= 64, "the CustomResourceDefinition allows no more"
    assert not [name for name in names if name.startswith("Mesh")], "these belong to the mesh, not to a class"
    assert not {"UDPRoute", "GatewayBackendClientCertificate"} & set(names)
    assert features("istio-remote") == []


@pytest.mark.parametrize(
    "controller", ["istio.io/agentgateway-controller", "istio.io/agentgateway-waypoint-controller"]
)
def test_gateways_of_agentgateway_are_left_to_others(controller: str) -> None:
    """Release note 59209."""
    harness = world(
        gateway_object("Gateway", "gw", GOOD.replace("gatewayClassName: istio", "gatewayClassName: agw"), "a")
    )
    agentgateway = {"apiVersion": f"{GATEWAY_API}/v1", "kind": "GatewayClass", "metadata": {"name": "agw"}}
    harness.set(rows_of([{**agentgateway, "spec": {"controllerName": controller}}]))
    assert class_status(harness.mesh, "agw") is None
    assert gateway_class(harness.mesh, "agw") is None
    assert gateway_status(harness.mesh, ObjectKey("a", "gw")) is None


def test_attached_routes_and_addresses_are_reported() -> None:
    routes = [gateway_object(kind, "x", at_gateway(), "a") for kind in ("HTTPRoute", "GRPCRoute")]
    harness = world(gateway_object("Gateway", "gw", GOOD.replace("value: front", "value: outside"), "a"), *routes)
    status = gateway_status(harness.mesh, ObjectKey("a", "gw"))
    assert status is not None
    assert {listener.name: listener.attached for listener in status.listeners} == {
        "http": 2,
        "narrow": 2,
        "sql": 0,
        "picky": 0,
    }
    assert status.addresses == ("9.9.9.9",)


def test_route_rule_edit_does_not_reach_the_gateway_status() -> None:
    harness = world(gateway_object("Gateway", "gw", GOOD, "a"), gateway_object("HTTPRoute", "x", at_gateway(), "a"))
    gateway_status(harness.mesh, ObjectKey("a", "gw"))
    node = harness.mesh.watch(gateway_status, ObjectKey("a", "gw"))
    harness.mesh.refresh(node)
    reached = harness.mesh.commit(
        [
            (
                HTTP_ROUTE.table(harness.mesh),
                KEY,
                next(iter(rows_of([gateway_object("HTTPRoute", "x", at_gateway(rules="rules: [{}]"), "a")]).values())),
            )
        ]
    )
    assert node not in reached


def test_status_errors_are_problems_with_a_path() -> None:
    refs = "parentRefs: [{name: gw, sectionName: http}, {name: gw, sectionName: ghost}]"
    route = gateway_object("HTTPRoute", "x", f"{refs}, rules: [{{backendRefs: [{{name: missing, port: 80}}]}}]", "a")
    harness = world(gateway_object("Gateway", "gw", GOOD, "a"), route)
    problems = {(p.code, p.path) for p in status_problems(harness.mesh, ObjectRef(HTTP_ROUTE.id, *KEY))}
    assert problems == {("no-matching-parent", "spec.parentRefs[1]"), ("backend-not-found", "spec.rules")}


def test_statusz_filters_by_namespace_and_kind() -> None:
    routes = [
        gateway_object("HTTPRoute", name, at_gateway(), namespace) for name, namespace in (("x", "a"), ("y", "b"))
    ]
    harness = world(gateway_object("Gateway", "gw", GOOD, "a"), *routes)

    def listed_names(**query: str) -> set[str]:
        return {status["name"] for status in statusz(sources(harness.mesh), query) if status["kind"] != "GatewayClass"}

    assert listed_names() == {"gw", "x", "y"}
    assert listed_names(namespace="a") == {"gw", "x"}
    assert listed_names(kind="httproute") == {"x", "y"}
    assert listed_names(namespace="a", kind="HTTPRoute") == {"x"}
    assert listed_names(namespace="c") == set()


def test_objects_with_status_have_a_plain_form() -> None:
    policy = "targetRefs: [{group: '', kind: Service, name: web}], validation: {wellKnownCACertificates: System, hostname: x}"
    harness = world(
        gateway_object("Gateway", "gw", GOOD, "a"),
        gateway_object("HTTPRoute", "x", at_gateway(), "a"),
        gateway_object("BackendTLSPolicy", "x", policy, "a"),
    )
    statuses = {
        ref.kind.name: plain_status(status, ref.kind, "c")
        for ref in objects_with_status(harness.mesh)
        if (status := object_status(harness.mesh, ref)) is not None
    }
    assert statuses.keys() == {"Gateway", "HTTPRoute", "BackendTLSPolicy"}
    assert {entry["controllerName"] for entry in statuses["HTTPRoute"]["parents"]} == {"c"}
    assert [entry["ancestorRef"]["kind"] for entry in statuses["BackendTLSPolicy"]["ancestors"]] == [
        "Service",
        "Gateway",
    ]
