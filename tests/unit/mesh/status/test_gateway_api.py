"""Objects of the Gateway API that are broken or half right, and what their status says, in the specification's words."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pilot.config.group_kind import GATEWAY_API, GroupKind
from pilot.config.kinds.gateway_api import HTTP_ROUTE
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.debug.statuses import statusz
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


def https(tls: str, more: str = "") -> str:
    return f"{ADDRESS}, listeners: [{{name: l, port: 443, protocol: HTTPS, tls: {tls}}}]{more}"


def frontend(ref: str, mode: str = "") -> str:
    return f", tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{ref}]{mode}}}}}}}}}"


def one(*listeners: str) -> str:
    return f"{ADDRESS}, listeners: [{', '.join(listeners)}]"


CERT = "{certificateRefs: [{name: cert}]}"
ROOTS = "{group: '', kind: ConfigMap, name: roots}"
GATEWAYS = [  # spec, condition of the Gateway: type, whether it holds, reason
    (one(HTTP), "Accepted", True, "Accepted"),
    (one(HTTP), "Programmed", True, "Programmed"),
    (one(HTTP), "ResolvedRefs", True, "ResolvedRefs"),
    (one(HTTP, "{name: u, port: 53, protocol: UDP}"), "Accepted", True, "ListenersNotValid"),
    (one("{name: u, port: 53, protocol: UDP}"), "Accepted", False, "ListenersNotValid"),
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
    (one("{name: w, port: 8080, protocol: HTTP}"), "Programmed", False, "AddressNotUsable"),
    (one("{name: w, port: 81, protocol: HTTP}"), "Programmed", False, "AddressNotUsable"),
    (
        f"{one(HTTP)}, infrastructure: {{parametersRef: {{group: '', kind: ConfigMap, name: params}}}}",
        "Accepted",
        True,
        "Accepted",
    ),
    (
        f"{one(HTTP)}, infrastructure: {{parametersRef: {{group: '', kind: ConfigMap, name: ghost}}}}",
        "Accepted",
        False,
        "InvalidParameters",
    ),
    (
        f"{one(HTTP)}, infrastructure: {{parametersRef: {{group: apps, kind: Deployment, name: x}}}}",
        "Accepted",
        False,
        "InvalidParameters",
    ),
    (f"{one(HTTP)}, tls: {{backend: {{clientCertificateRef: {{name: cert}}}}}}", "ResolvedRefs", True, "ResolvedRefs"),
    (
        f"{one(HTTP)}, tls: {{backend: {{clientCertificateRef: {{name: ghost}}}}}}",
        "ResolvedRefs",
        False,
        "InvalidClientCertificateRef",
    ),
    (
        f"{one(HTTP)}, tls: {{backend: {{clientCertificateRef: {{name: bad}}}}}}",
        "ResolvedRefs",
        False,
        "InvalidClientCertificateRef",
    ),
    (
        f"{one(HTTP)}, tls: {{backend: {{clientCertificateRef: {{kind: ConfigMap, name: roots}}}}}}",
        "ResolvedRefs",
        False,
        "InvalidClientCertificateRef",
    ),
    (
        f"{one(HTTP)}, tls: {{backend: {{clientCertificateRef: {{name: cert, namespace: b}}}}}}",
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    (
        https(CERT, frontend(ROOTS, ", mode: AllowInsecureFallback")),
        "InsecureFrontendValidationMode",
        True,
        "ConfigurationChanged",
    ),
    ("gatewayClassName: istio-remote, listeners: [" + HTTP + "]", "Programmed", True, "Programmed"),
    ("gatewayClassName: istio-remote, listeners: [" + HTTP + "]", "Accepted", True, "Accepted"),
]
LISTENERS = [  # spec, condition of its last listener
    (one(HTTP), "Accepted", True, "Accepted"),
    (one(HTTP), "Conflicted", False, "NoConflicts"),
    (one(HTTP), "Programmed", True, "Programmed"),
    (one(HTTP, "{name: again, port: 80, protocol: HTTP}"), "Conflicted", True, "HostnameConflict"),
    (one(HTTP, "{name: again, port: 80, protocol: HTTP}"), "Accepted", False, "HostnameConflict"),
    (one(HTTP, "{name: other, port: 80, protocol: HTTP, hostname: x.com}"), "Conflicted", False, "NoConflicts"),
    (one(HTTP, "{name: raw, port: 80, protocol: TCP}"), "Conflicted", True, "ProtocolConflict"),
    (
        one("{name: one, port: 90, protocol: TCP}", "{name: two, port: 90, protocol: TCP}"),
        "Conflicted",
        True,
        "ProtocolConflict",
    ),
    (
        one(HTTP, "{name: names, port: 80, protocol: TLS, tls: {mode: Passthrough}}"),
        "Programmed",
        False,
        "ProtocolConflict",
    ),
    (one("{name: u, port: 53, protocol: UDP}"), "Accepted", False, "UnsupportedProtocol"),
    (one("{name: l, port: 80, protocol: http}"), "Accepted", False, "UnsupportedProtocol"),
    (one("{name: l, port: 15008, protocol: HBONE}"), "Accepted", False, "UnsupportedProtocol"),
    (
        one("{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}"),
        "ResolvedRefs",
        False,
        "InvalidRouteKinds",
    ),
    (
        one("{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: Ghost}]}}"),
        "ResolvedRefs",
        False,
        "InvalidRouteKinds",
    ),
    (
        one("{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{group: x.io, kind: HTTPRoute}]}}"),
        "ResolvedRefs",
        False,
        "InvalidRouteKinds",
    ),
    (https(CERT), "ResolvedRefs", True, "ResolvedRefs"),
    (https("{certificateRefs: [{name: ghost}]}"), "ResolvedRefs", False, "InvalidCertificateRef"),
    (https("{certificateRefs: [{name: ghost}]}"), "Programmed", False, "Invalid"),
    (https("{certificateRefs: [{name: bad}]}"), "ResolvedRefs", False, "InvalidCertificateRef"),
    (https("{certificateRefs: [{kind: ConfigMap, name: roots}]}"), "ResolvedRefs", False, "InvalidCertificateRef"),
    (
        https("{certificateRefs: [{group: x.io, kind: Secret, name: cert}]}"),
        "ResolvedRefs",
        False,
        "InvalidCertificateRef",
    ),
    (
        https("{certificateRefs: [{name: cert}, {name: cert}, {name: cert}]}"),
        "ResolvedRefs",
        False,
        "InvalidCertificateRef",
    ),
    (https("{certificateRefs: []}"), "ResolvedRefs", False, "InvalidCertificateRef"),
    (https("{certificateRefs: [{name: cert}, {name: ghost}]}"), "ResolvedRefs", True, "ResolvedRefs"),
    (https("{certificateRefs: [{name: cert, namespace: b}]}"), "ResolvedRefs", False, "RefNotPermitted"),
    (https("{certificateRefs: [{name: ghost, namespace: b}]}"), "ResolvedRefs", False, "RefNotPermitted"),
    (https(CERT, frontend(ROOTS)), "Accepted", True, "Accepted"),
    (
        https(CERT, frontend("{group: '', kind: ConfigMap, name: ghost}")),
        "ResolvedRefs",
        False,
        "InvalidCACertificateRef",
    ),
    (https(CERT, frontend("{group: '', kind: ConfigMap, name: ghost}")), "Accepted", False, "NoValidCACertificate"),
    (
        https(CERT, frontend("{group: '', kind: ConfigMap, name: empty}")),
        "ResolvedRefs",
        False,
        "InvalidCACertificateRef",
    ),
    (https(CERT, frontend("{group: '', kind: Service, name: web}")), "ResolvedRefs", False, "InvalidCACertificateKind"),
    (
        https(CERT, frontend("{group: '', kind: ConfigMap, name: roots, namespace: b}")),
        "ResolvedRefs",
        False,
        "RefNotPermitted",
    ),
    (https(CERT, frontend(f"{ROOTS}, {ROOTS}")), "ResolvedRefs", False, "InvalidCACertificateRef"),
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
        at_gateway(rules="rules: [{backendRefs: [{name: web}]}]"),
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
        at_gateway(rules="rules: [{backendRefs: [{name: web}]}]"),
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
SETS = [  # who may attach, spec, condition
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
    made = World(environ={"PILOT_ENABLE_ALPHA_GATEWAY_API": "true"})
    made.set(rows_of((*FIXED, *objects)))
    return made


def told(conditions: tuple[StatusCondition, ...], type_: str) -> tuple[bool, str]:
    found = [(c.status, c.reason) for c in conditions if c.type == type_]
    assert len(found) == 1, conditions
    return found[0]


@pytest.mark.parametrize(("spec", "type_", "holds", "reason"), GATEWAYS)
def test_gateways(spec: str, type_: str, holds: bool, reason: str) -> None:
    found = gateway_status(world(gateway_object("Gateway", "x", spec, "a")).mesh, KEY)
    assert found is not None
    assert told(found.conditions, type_) == (holds, reason)


@pytest.mark.parametrize(("spec", "type_", "holds", "reason"), LISTENERS)
def test_listeners(spec: str, type_: str, holds: bool, reason: str) -> None:
    found = gateway_status(world(gateway_object("Gateway", "x", spec, "a")).mesh, KEY)
    assert found is not None
    assert told(found.listeners[-1].conditions, type_) == (holds, reason)


@pytest.mark.parametrize(("kind", "spec", "type_", "holds", "reason"), ROUTES)
def test_routes(kind: str, spec: str, type_: str, holds: bool, reason: str) -> None:
    made = world(gateway_object("Gateway", "gw", GOOD, "a"), gateway_object(kind, "x", spec, "a"))
    found = route_status(made.mesh, RouteKey(GroupKind(GATEWAY_API, kind), *KEY))
    assert told(found[0].conditions, type_) == (holds, reason)


@pytest.mark.parametrize(("spec", "type_", "holds", "reason"), POLICIES)
def test_policies_of_backends(spec: str, type_: str, holds: bool, reason: str) -> None:
    found = backend_tls_status(world(gateway_object("BackendTLSPolicy", "x", spec, "a")).mesh, KEY)
    assert told(found[-1].conditions, type_) == (holds, reason)


@pytest.mark.parametrize(("allowed", "spec", "type_", "holds", "reason"), SETS)
def test_listener_sets(allowed: str, spec: str, type_: str, holds: bool, reason: str) -> None:
    gateway = gateway_object(
        "Gateway",
        "gw",
        f"{one(HTTP, '{name: more, port: 443, protocol: HTTP}')}, allowedListeners: {{namespaces: {allowed}}}",
        "a",
    )
    found = listener_set_status(
        world(gateway, gateway_object("ListenerSet", "x", f"parentRef: {{name: gw}}, {spec}", "a")).mesh, KEY
    )
    assert found is not None
    assert told(found.conditions, type_) == (holds, reason)


def test_there_are_enough_of_them() -> None:
    tables: tuple[list[Any], ...] = (GATEWAYS, LISTENERS, ROUTES, POLICIES, SETS)
    broken = {str(row[:-3]) for table in tables for row in table if not row[-2] and row[-1] != "NoConflicts"}
    assert len(broken) >= 80, "objects, each of which may have several conditions"
    assert sum(len(table) for table in tables) >= 110


def test_of_two_policies_for_one_target_the_older_counts() -> None:
    spec = "targetRefs: [{group: '', kind: Service, name: web}], validation: {wellKnownCACertificates: System, hostname: x}"
    made = world(
        gateway_object("BackendTLSPolicy", "old", spec, "a", 1), gateway_object("BackendTLSPolicy", "x", spec, "a", 2)
    )
    assert told(backend_tls_status(made.mesh, KEY)[0].conditions, "Accepted") == (False, "Conflicted")
    assert told(backend_tls_status(made.mesh, ObjectKey("a", "old"))[0].conditions, "Accepted") == (True, "Accepted")


def test_a_policy_that_is_to_be_ignored_says_so() -> None:
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
    made = world(tls, traffic)
    assert told(backend_tls_status(made.mesh, KEY)[0].conditions, "Accepted") == (False, "Ignored")
    assert told(traffic_policy_status(made.mesh, KEY)[0].conditions, "Accepted") == (False, "Ignored")


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
def test_a_policy_that_says_what_is_not_obeyed_is_told_so(more: str, message: str) -> None:
    spec = f"targetRefs: [{{group: '', kind: Service, name: web}}]{more}"
    made = world(gateway_object("XBackendTrafficPolicy", "x", spec, "a", api="gateway.networking.x-k8s.io/v1alpha1"))
    assert [c.message for c in traffic_policy_status(made.mesh, KEY)[0].conditions if c.type == "Accepted"] == [message]


@pytest.mark.parametrize(
    ("parent", "message"), [(", sectionName: http", "Route was valid"), ("", "Route was valid, bound to 2 parents")]
)
def test_a_route_is_told_how_many_listeners_took_it(parent: str, message: str) -> None:
    made = world(gateway_object("Gateway", "gw", GOOD, "a"), gateway_object("HTTPRoute", "x", at_gateway(parent), "a"))
    found = route_status(made.mesh, RouteKey(GroupKind(GATEWAY_API, "HTTPRoute"), *KEY))
    assert [c.message for c in found[0].conditions if c.type == "Accepted"] == [message]


@pytest.mark.parametrize(
    ("name", "ours"), [("istio", True), ("istio-remote", True), ("mine", True), ("other", False), ("ghost", False)]
)
def test_classes(name: str, ours: bool) -> None:
    made = world()
    for named, controller in (("mine", "istio.io/gateway-controller"), ("other", "example.com/x")):
        made.set(
            rows_of(
                [
                    yaml.safe_load(
                        f"{{apiVersion: {GATEWAY_API}/v1, kind: GatewayClass, metadata: {{name: {named}}}, spec: {{controllerName: {controller}}}}}"
                    )
                ]
            )
        )
    assert (class_status(made.mesh, name) is not None) == ours


def test_a_class_that_exists_by_itself_stays_though_an_object_of_its_name_is_another_controllers() -> None:
    made = world()
    made.set(
        rows_of(
            [
                yaml.safe_load(
                    f"{{apiVersion: {GATEWAY_API}/v1, kind: GatewayClass, metadata: {{name: istio}}, spec: {{controllerName: example.com/x}}}}"
                )
            ]
        )
    )
    assert gateway_class(made.mesh, "istio") is not None
    assert class_status(made.mesh, "istio") is None


def test_routes_are_counted_and_addresses_told() -> None:
    routes = [gateway_object(kind, "x", at_gateway(), "a") for kind in ("HTTPRoute", "GRPCRoute")]
    made = world(gateway_object("Gateway", "gw", GOOD.replace("value: front", "value: outside"), "a"), *routes)
    found = gateway_status(made.mesh, ObjectKey("a", "gw"))
    assert found is not None
    assert {one.name: one.attached for one in found.listeners} == {"http": 2, "narrow": 2, "sql": 0, "picky": 0}
    assert found.addresses == ("9.9.9.9",)


def test_a_rule_that_is_edited_reaches_the_route_alone() -> None:
    made = world(gateway_object("Gateway", "gw", GOOD, "a"), gateway_object("HTTPRoute", "x", at_gateway(), "a"))
    gateway_status(made.mesh, ObjectKey("a", "gw"))
    node = made.mesh.watch(gateway_status, ObjectKey("a", "gw"))
    made.mesh.refresh(node)
    reached = made.mesh.commit(
        [
            (
                HTTP_ROUTE.table(made.mesh),
                KEY,
                next(iter(rows_of([gateway_object("HTTPRoute", "x", at_gateway(rules="rules: [{}]"), "a")]).values())),
            )
        ]
    )
    assert node not in reached


def test_what_a_status_says_is_wrong_is_a_problem_with_its_place() -> None:
    refs = "parentRefs: [{name: gw, sectionName: http}, {name: gw, sectionName: ghost}]"
    route = gateway_object("HTTPRoute", "x", f"{refs}, rules: [{{backendRefs: [{{name: missing, port: 80}}]}}]", "a")
    made = world(gateway_object("Gateway", "gw", GOOD, "a"), route)
    found = {(p.code, p.path) for p in status_problems(made.mesh, ObjectRef(HTTP_ROUTE.id, *KEY))}
    assert found == {("no-matching-parent", "spec.parentRefs[1]"), ("backend-not-found", "spec.rules")}


def test_statuses_are_shown_of_a_namespace_and_of_a_kind() -> None:
    routes = [
        gateway_object("HTTPRoute", name, at_gateway(), namespace) for name, namespace in (("x", "a"), ("y", "b"))
    ]
    made = world(gateway_object("Gateway", "gw", GOOD, "a"), *routes)

    def shown(**query: str) -> set[str]:
        return {found["name"] for found in statusz(sources(made.mesh), query) if found["kind"] != "GatewayClass"}

    assert shown() == {"gw", "x", "y"}
    assert shown(namespace="a") == {"gw", "x"}
    assert shown(kind="httproute") == {"x", "y"}
    assert shown(namespace="a", kind="HTTPRoute") == {"x"}
    assert shown(namespace="c") == set()


def test_every_object_that_may_have_a_status_is_listed_and_shown() -> None:
    policy = "targetRefs: [{group: '', kind: Service, name: web}], validation: {wellKnownCACertificates: System, hostname: x}"
    made = world(
        gateway_object("Gateway", "gw", GOOD, "a"),
        gateway_object("HTTPRoute", "x", at_gateway(), "a"),
        gateway_object("BackendTLSPolicy", "x", policy, "a"),
    )
    shown = {
        ref.kind.name: plain_status(status, ref.kind, "c")
        for ref in objects_with_status(made.mesh)
        if (status := object_status(made.mesh, ref)) is not None
    }
    assert shown.keys() == {"Gateway", "HTTPRoute", "BackendTLSPolicy"}
    assert {one["controllerName"] for one in shown["HTTPRoute"]["parents"]} == {"c"}
    assert [one["ancestorRef"]["kind"] for one in shown["BackendTLSPolicy"]["ancestors"]] == ["Service", "Gateway"]
