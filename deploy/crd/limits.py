"""Constraints in CustomResourceDefinitions other than types: required fields, bounds, and CEL rules.

They equal those in Istio's definitions, so that an API server accepts the same objects with either.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pilot.config import selector, telemetry
from pilot.config.extensions import traffic_extension as extension
from pilot.config.extensions.wasm_plugin import WasmPlugin
from pilot.config.mesh import tracing
from pilot.config.mesh.proxy_config import ProxyConfigOverride
from pilot.config.networking import destination_rule as rule
from pilot.config.networking import envoy_filter, gateway, sidecar
from pilot.config.networking import service_entry as entry
from pilot.config.networking import virtual_service as route
from pilot.config.networking import workload_group as group
from pilot.config.networking.workload_entry import WorkloadEntry, WorkloadEntryObject
from pilot.config.security import authorization_policy as authorization
from pilot.config.security import request_authentication as request
from pilot.config.security.peer_authentication import PeerAuthentication

Schema = dict[str, Any]


class Limits(NamedTuple):
    """The constraints of a struct, and those of its fields, which are keyed by JSON name."""

    schema: Schema = {}
    fields: Mapping[str, Schema] = {}


def cel(*rules: tuple[str, str]) -> Schema:
    """Return a schema with CEL rules. Each rule is given with the message for violations."""
    return {"x-kubernetes-validations": [{"rule": text, "message": message} for text, message in rules]}


def at_most_one(message: str, *fields: str) -> tuple[str, str]:
    """Return the rule that at most one of the fields is set, with its message."""
    return " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields) + " <= 1", message


def requires(*fields: str) -> Limits:
    """Return the limits of a struct whose only constraints are required fields."""
    return Limits({"required": list(fields)})


DURATION = cel(("duration(self) >= duration('1ms')", "must be a valid duration greater than 1ms"))
PORT = cel(("0 < self && self <= 65535", "port must be between 1-65535"))
NAMED = {"minLength": 1}
HEADER = {"pattern": "^[-_A-Za-z0-9]+$", **NAMED}
SOCKET_OF_PATH = cel(
    (
        '!self.startsWith("unix://") || self.substring(7, 8) == "/" || self.substring(7, 8) == "@"',
        "UDS must be an absolute path or abstract socket",
    ),
    ('!self.startsWith("unix://") || !self.endsWith("/")', "UDS may not be a dir"),
)
URL = {
    "maxLength": 2048,
    **NAMED,
    **cel(('url(self).getScheme() in ["http", "https"]', "url must have scheme http:// or https://")),
}
LABELS_WITHOUT_WILDCARD = Limits(
    fields={
        "labels": {
            "maxProperties": 256,
            "additionalProperties": {
                "maxLength": 63,
                **cel(('!self.contains("*")', "wildcard is not supported in selector")),
            },
        }
    }
)
ATTACHED = at_most_one("only one of targetRefs or selector can be set", "selector", "targetRef", "targetRefs")
NO_PORTS_OF_SOCKET = (
    '!(has(self.address) && self.address.startsWith("unix://")) || !has(self.ports)',
    "UDS may not include ports",
)
ADDRESSED = ("has(self.address) || has(self.network)", "Address is required")
ADDRESS_FIELDS: dict[str, Schema] = {
    "address": {"maxLength": 256, **SOCKET_OF_PATH},
    "locality": {"maxLength": 2048},
    "network": {"maxLength": 2048},
    "serviceAccount": {"maxLength": 253},
    "labels": {"maxProperties": 256},
    "ports": {
        "maxProperties": 128,
        "additionalProperties": PORT,
        **cel(
            (
                "self.all(key, size(key) < 63 && key.matches('^[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?$'))",
                "port name must be valid",
            )
        ),
    },
}
_SERVER_TLS = cel(
    at_most_one("only one of credentialNames or tlsCertificates can be set", "tlsCertificates", "credentialNames"),
    at_most_one("only one of credentialName or credentialNames can be set", "credentialName", "credentialNames"),
    at_most_one("only one of credentialName or tlsCertificates can be set", "credentialName", "tlsCertificates"),
)
_ONE_OR_TWO = {"minItems": 1, "maxItems": 2}

_SCHEMES = '["", "http", "https", "oci", "file"]'
MODULE: dict[str, Schema] = {
    "url": {
        **NAMED,
        **cel(
            (
                f"isURL(self) ? (url(self).getScheme() in {_SCHEMES}) : "
                f'(isURL("http://" + self) && url("http://" + self).getScheme() in {_SCHEMES})',
                "url must have schema one of [http, https, file, oci]",
            )
        ),
    },
    "sha256": {"pattern": "(^$|^[a-f0-9]{64}$)"},
    "imagePullSecret": {"maxLength": 253, **NAMED},
    "pluginName": {"maxLength": 256, **NAMED},
}

LIMITS: Mapping[type[Any], Limits] = {
    # Selectors and targets
    selector.WorkloadSelector: Limits(
        fields={
            "matchLabels": {
                "maxProperties": 4096,
                "additionalProperties": {
                    "maxLength": 63,
                    **cel(('!self.contains("*")', "wildcard not allowed in label value match")),
                },
                **cel(
                    ('self.all(key, !key.contains("*"))', "wildcard not allowed in label key match"),
                    ("self.all(key, key.size() != 0)", "key must not be empty"),
                ),
            }
        }
    ),
    selector.PolicyTargetReference: Limits(
        {"required": ["kind", "name"]},
        {
            "group": {
                "maxLength": 253,
                "pattern": "^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            },
            "kind": {"maxLength": 63, "pattern": "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$", **NAMED},
            "name": {"maxLength": 253, **NAMED},
            "namespace": cel(("self.size() == 0", "cross namespace referencing is not currently supported")),
        },
    ),
    sidecar.WorkloadSelector: LABELS_WITHOUT_WILDCARD,
    # VirtualService
    route.Destination: requires("host"),
    route.HTTPRouteDestination: requires("destination"),
    route.RouteDestination: requires("destination"),
    route.HTTPMirrorPolicy: requires("destination"),
    route.HTTPDirectResponse: requires("status"),
    route.TLSRoute: requires("match"),
    route.TLSMatchAttributes: requires("sniHosts"),
    route.HTTPRoute: Limits(fields={"timeout": DURATION}),
    route.HTTPRetry: Limits(fields={"perTryTimeout": DURATION, "backoff": DURATION}),
    route.CorsPolicy: Limits(fields={"maxAge": DURATION}),
    route.Delay: Limits(fields={"fixedDelay": DURATION, "exponentialDelay": DURATION}),
    # DestinationRule
    rule.DestinationRule: requires("host"),
    rule.Subset: requires("name"),
    rule.HTTPCookie: requires("name"),
    rule.Attribute: requires("name"),
    rule.TunnelSettings: requires("targetHost", "targetPort"),
    rule.TrafficPolicy: Limits(fields={"portLevelSettings": {"maxItems": 4096}}),
    rule.LoadBalancerSettings: Limits(fields={"warmupDurationSecs": DURATION}),
    rule.WarmupConfiguration: Limits(
        {"required": ["duration"]},
        {"duration": DURATION, "minimumPercent": {"minimum": 0, "maximum": 100}, "aggression": {"minimum": 0}},
    ),
    rule.ZoneAwareLoadBalancerSetting: Limits(fields={"minClusterSize": {"minimum": 1}}),
    rule.RetryBudget: Limits(fields={"percent": {"minimum": 0, "maximum": 100}}),
    rule.TcpKeepalive: Limits(fields={"time": DURATION, "interval": DURATION}),
    rule.TCPSettings: Limits(fields={"connectTimeout": DURATION, "maxConnectionDuration": DURATION}),
    rule.ConnectionKeepalive: Limits(fields={"interval": DURATION, "timeout": DURATION}),
    rule.HTTPSettings: Limits(fields={"idleTimeout": DURATION}),
    rule.OutlierDetection: Limits(
        fields={
            "interval": DURATION,
            "baseEjectionTime": DURATION,
            "outlierDetectionHttpErrorCodes": {"items": {"minimum": 100, "maximum": 599}},
        }
    ),
    # Gateway and Sidecar
    gateway.Server: requires("port", "hosts"),
    gateway.Port: requires("number", "protocol", "name"),
    gateway.ServerTLSSettings: Limits(_SERVER_TLS, {"credentialNames": _ONE_OR_TWO, "tlsCertificates": _ONE_OR_TWO}),
    sidecar.IstioIngressListener: requires("port"),
    sidecar.IstioEgressListener: requires("hosts"),
    # ServiceEntry and workloads
    entry.ServiceEntry: Limits(
        {
            "required": ["hosts"],
            **cel(
                at_most_one("only one of WorkloadSelector or Endpoints can be set", "workloadSelector", "endpoints"),
                (
                    '!(has(self.addresses) && self.addresses.exists(a, a.contains("/"))) || !has(self.resolution) '
                    '|| self.resolution in ["STATIC", "NONE"]',
                    "CIDR addresses are allowed only for NONE/STATIC resolution types",
                ),
                (
                    '(has(self.resolution) && self.resolution != "NONE") || !has(self.endpoints)',
                    "NONE mode cannot set endpoints",
                ),
                (
                    '!(has(self.resolution) && self.resolution == "DNS_ROUND_ROBIN" && has(self.endpoints))'
                    " || self.endpoints.size() <= 1",
                    "DNS_ROUND_ROBIN mode cannot have multiple endpoints",
                ),
            ),
        },
        {
            "hosts": {"minItems": 1, "maxItems": 256, "items": cel(('self != "*"', "hostname cannot be wildcard"))},
            "addresses": {"maxItems": 256, "items": {"maxLength": 64}},
            "endpoints": {"maxItems": 4096, "items": cel(ADDRESSED, NO_PORTS_OF_SOCKET)},
            "ports": {
                "maxItems": 256,
                **cel(
                    (
                        "self.all(one, self.exists_one(other, one.number == other.number))",
                        "port number cannot be duplicated",
                    )
                ),
            },
        },
    ),
    entry.ServicePort: Limits(
        {"required": ["number", "name"]},
        {"number": PORT, "targetPort": PORT, "name": {"maxLength": 256}, "protocol": {"maxLength": 256}},
    ),
    WorkloadEntry: Limits(cel(NO_PORTS_OF_SOCKET), ADDRESS_FIELDS),
    WorkloadEntryObject: Limits(cel(ADDRESSED, NO_PORTS_OF_SOCKET), ADDRESS_FIELDS),
    group.WorkloadGroup: requires("template"),
    group.ObjectMeta: Limits(fields={"labels": {"maxProperties": 256}, "annotations": {"maxProperties": 256}}),
    group.ReadinessProbe: Limits(
        fields={
            name: {"minimum": 0}
            for name in (
                "initialDelaySeconds",
                "timeoutSeconds",
                "periodSeconds",
                "successThreshold",
                "failureThreshold",
            )
        }
    ),
    group.HTTPHealthCheckConfig: Limits(
        {"required": ["port"]},
        {"port": PORT, "scheme": cel(('self in ["", "HTTP", "HTTPS"]', "scheme must be one of [HTTP, HTTPS]"))},
    ),
    group.HTTPHeader: Limits(fields={"name": {"pattern": "^[-_A-Za-z0-9]+$"}}),
    group.TCPHealthCheckConfig: Limits({"required": ["port"]}, {"port": PORT}),
    group.GrpcHealthCheckConfig: Limits(fields={"port": PORT}),
    group.ExecHealthCheckConfig: Limits({"required": ["command"]}, {"command": {"items": NAMED}}),
    # Extensions
    envoy_filter.EnvoyFilter: Limits(
        cel(at_most_one("only one of targetRefs or workloadSelector can be set", "workloadSelector", "targetRefs")),
        {"targetRefs": {"maxItems": 16}},
    ),
    envoy_filter.WorkloadLabels: LABELS_WITHOUT_WILDCARD,
    envoy_filter.EnvoyConfigObjectMatch: Limits(
        cel(
            (
                '(has(self.context) && self.context == "WAYPOINT") == has(self.waypoint)',
                "only support waypointMatch when context is WAYPOINT",
            )
        )
    ),
    envoy_filter.WaypointMatch: Limits(fields={"portNumber": PORT}),
    extension.TrafficExtension: Limits(
        cel(
            at_most_one("only one of targetRefs or selector can be set", "selector", "targetRefs"),
            ("has(self.wasm) != has(self.lua)", "exactly one of wasm or lua must be set"),
        ),
        {"targetRefs": {"maxItems": 16}},
    ),
    extension.PortSelector: Limits({"required": ["number"]}, {"number": {"minimum": 1, "maximum": 65535}}),
    extension.WasmConfig: Limits({"required": ["url"]}, MODULE),
    extension.LuaConfig: Limits({"required": ["inlineCode"]}, {"inlineCode": {"maxLength": 65536, **NAMED}}),
    extension.VmConfig: Limits(fields={"env": {"maxItems": 256}}),
    extension.EnvVar: Limits(
        {
            "required": ["name"],
            **cel(
                (
                    '!(has(self.valueFrom) && self.valueFrom == "HOST") || !has(self.value)',
                    "value may only be set when valueFrom is INLINE",
                )
            ),
        },
        {"name": {"maxLength": 256, **NAMED}, "value": {"maxLength": 2048}},
    ),
    WasmPlugin: Limits({"required": ["url"], **cel(ATTACHED)}, {"targetRefs": {"maxItems": 16}, **MODULE}),
    # Telemetry and proxies
    telemetry.Telemetry: Limits(cel(ATTACHED), {"targetRefs": {"maxItems": 16}}),
    telemetry.ProviderRef: Limits({"required": ["name"]}, {"name": NAMED}),
    telemetry.TelemetryTracing: Limits(fields={"randomSamplingPercentage": {"minimum": 0, "maximum": 100}}),
    telemetry.Formatter: Limits({"required": ["value"]}, {"value": NAMED}),
    telemetry.Metrics: Limits(fields={"reportingInterval": DURATION}),
    telemetry.MetricSelector: Limits(fields={"customMetric": NAMED}),
    telemetry.TagOverride: Limits(
        cel(
            (
                '!(has(self.operation) && self.operation == "UPSERT") || (has(self.value) && self.value != "")',
                "value must be set when operation is UPSERT",
            ),
            (
                '!(has(self.operation) && self.operation == "REMOVE") || !has(self.value)',
                "value must not be set when operation is REMOVE",
            ),
        )
    ),
    tracing.LiteralValue: Limits({"required": ["value"]}, {"value": NAMED}),
    tracing.Environment: Limits({"required": ["name"]}, {"name": NAMED}),
    tracing.RequestHeader: Limits({"required": ["name"]}, {"name": NAMED}),
    ProxyConfigOverride: Limits(
        fields={"concurrency": {"minimum": 0}, "environmentVariables": {"additionalProperties": {"maxLength": 2048}}}
    ),
    # Security
    PeerAuthentication: Limits(
        cel(
            (
                "!has(self.portLevelMtls) || (has(self.selector) && has(self.selector.matchLabels)"
                " && self.selector.matchLabels.size() > 0)",
                "portLevelMtls requires selector",
            )
        ),
        {
            "portLevelMtls": {
                "minProperties": 1,
                **cel(("self.all(key, 0 < int(key) && int(key) <= 65535)", "port must be between 1-65535")),
            }
        },
    ),
    request.RequestAuthentication: Limits(
        cel(ATTACHED), {"targetRefs": {"maxItems": 16}, "jwtRules": {"maxItems": 4096}}
    ),
    request.JWTRule: Limits(
        cel(at_most_one("only one of jwks or jwksUri can be set", "jwksUri", "jwks")),
        {
            "jwksUri": URL,
            "issuer": NAMED,
            "timeout": DURATION,
            "spaceDelimitedClaims": {"maxItems": 64, "items": NAMED},
            **{name: {"items": NAMED} for name in ("audiences", "fromCookies", "fromParams")},
        },
    ),
    request.JWTHeader: Limits({"required": ["name"]}, {"name": NAMED}),
    request.ClaimToHeader: Limits({"required": ["header", "claim"]}, {"header": HEADER, "claim": NAMED}),
    authorization.AuthorizationPolicy: Limits(
        cel(ATTACHED), {"targetRefs": {"maxItems": 16}, "rules": {"maxItems": 512}}
    ),
    authorization.Rule: Limits(fields={"from": {"maxItems": 512}}),
    authorization.Condition: requires("key"),
    authorization.Source: Limits(
        cel(
            (
                "!(has(self.serviceAccounts) || has(self.notServiceAccounts)) || (!has(self.principals)"
                " && !has(self.notPrincipals) && !has(self.namespaces) && !has(self.notNamespaces))",
                "Cannot set serviceAccounts with namespaces or principals",
            )
        ),
        {name: {"maxItems": 16, "items": {"maxLength": 320}} for name in ("serviceAccounts", "notServiceAccounts")},
    ),
}
