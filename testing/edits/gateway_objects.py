"""Gateway API objects and Ingresses for random edits: gateways of the router in namespace edge, and routes to
namespaces a and b.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from testing.edits.slot import Slot, one_of
from testing.mesh.objects import Plain, make

API = "gateway.networking.k8s.io/v1"
FRONT_REF = "name: front, namespace: edge"
WEB, GRPC = "{name: web, namespace: a, kind: Service, group: ''}", "{name: api, namespace: b, port: 80}"
ALL = "allowedRoutes: {namespaces: {from: All}}"
ROUTED = "allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {istio-injection: enabled}}}}"
ADDRESS = "gatewayClassName: istio, addresses: [{type: Hostname, value: front}]"
ANY = f"{{name: any, port: 80, protocol: HTTP, {ALL}}}"


def gateway_object(
    kind: str,
    name: str,
    spec: str,
    namespace: str = "edge",
    day: int = 1,
    api: str = API,
    status: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Plain:
    """Return a Gateway API object. `spec` is YAML without the outer braces."""
    plain = make(kind, name, "{}", namespace, day)
    plain["metadata"] |= metadata
    return plain | {
        "apiVersion": api,
        "spec": yaml.safe_load(f"{{{spec}}}"),
        **({"status": status} if status is not None else {}),
    }


def each(kind: str, name: str, namespace: str, *specs: str, day: int = 1, api: str = API) -> Slot:
    """Return a slot of an object with each spec."""
    return one_of(*(gateway_object(kind, name, spec, namespace, day, api) for spec in specs))


def cluster_wide(kind: str, name: str, api: str, *specs: str) -> Slot:
    """Return a slot of a cluster-scoped object with each spec."""
    variants = [gateway_object(kind, name, spec, api=api) for spec in specs]
    for plain in variants:
        del plain["metadata"]["namespace"]
    return one_of(*variants)


def tls(name: str, refs: str, host: str = "", more: str = "") -> str:
    hostname = f"hostname: {host}, " if host else ""
    return f"{{name: {name}, port: 443, protocol: HTTPS, {hostname}tls: {{certificateRefs: [{refs}]{more}}}, {ALL}}}"


NARROW = f"{{name: narrow, port: 80, protocol: HTTP, hostname: '*.example.com', {ROUTED}}}"
SQL = f"{{name: sql, port: 9000, protocol: TCP, {ALL}}}"
NAMES = f"{{name: names, port: 8443, protocol: TLS, hostname: '*.example.com', tls: {{mode: Passthrough}}, {ALL}}}"
PORTS = "ports: [{name: http, port: 80, targetPort: 8080}, {name: tls, port: 443}, {name: names, port: 8443}, {name: sql, port: 9000}]"
OWN = ADDRESS.replace("istio", "own")
SETS = "allowedListeners: {namespaces: {from: All}}"
CHOSEN_SETS = "allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {istio-injection: enabled}}}}"
SAFE, ALIKE = tls("safe", "{name: c}"), tls("alike", "{name: c, namespace: a}", "x.example.com")
VERIFIED = "tls: {frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: c}]}}}}"
INGRESS = "networking.k8s.io/v1"
POOLED = (
    "internal.istio.io/service-semantics: inferencepool, istio.io/inferencepool-name: llm, istio.io/inferencepool-extension-service: api, "
    "istio.io/inferencepool-extension-failure-mode: FailClose"
)


def path(text: str, port: str = "number: 80", kind: str = "Prefix") -> str:
    return f"{{path: {text}, pathType: {kind}, backend: {{service: {{name: web, port: {{{port}}}}}}}}}"


GATEWAYS = [
    one_of(
        make(
            "Service",
            "front",
            f"{{clusterIP: 10.96.0.30, clusterIPs: [10.96.0.30], selector: {{istio: ingress}}, {PORTS}}}",
            "edge",
        ),
        make(
            "Service",
            "front",
            "{clusterIP: 10.96.0.30, clusterIPs: [10.96.0.30], selector: {istio: ingress}, ports: [{name: http, port: 80}, {name: names, port: 8443}, {name: sql, port: 9001}]}",
            "edge",
        ),
    )._replace(empty=0.03),
    cluster_wide(
        "GatewayClass", "own", API, "controllerName: istio.io/gateway-controller", "controllerName: example.com/other"
    ),
    one_of(
        *(
            gateway_object("Gateway", "front", spec)
            for spec in (
                f"{OWN}, {SETS}, listeners: [{ANY}, {NARROW}, {SQL}, {NAMES}]",
                f"{OWN}, {SETS}, listeners: [{NARROW}, {SQL}, {NAMES}, {SAFE}, {ALIKE}]",
                f"{OWN}, {SETS}, listeners: [{ANY}, {SQL}, {NAMES}, {SAFE}], {VERIFIED}",
                f"{ADDRESS}, {CHOSEN_SETS}, listeners: [{ANY}, {SQL}, {NAMES}]",
                f"{OWN}, listeners: [{ANY}, {NARROW}, {SQL}, {NAMES}]",
                f"{OWN.replace('front', 'web.a.svc.cluster.local')}, {SETS}, listeners: [{ANY}]",
            )
        ),
        *(
            gateway_object(
                "Gateway",
                "front",
                f"gatewayClassName: istio-remote, addresses: [{{value: {address}}}], listeners: [{{name: h, port: 15008, protocol: HBONE}}]",
                labels={"topology.istio.io/network": "net2"},
            )
            for address in ("9.9.7.2", "9.9.7.3")
        ),
        gateway_object(
            "Gateway",
            "front",
            "gatewayClassName: istio-remote, addresses: [{value: 9.9.7.1}], listeners: [{name: n, port: 15443, protocol: TLS, tls: {mode: Passthrough}}]",
            labels={"topology.istio.io/network": "net2"},
        ),
    )._replace(name="Gateway api edge/front", empty=0.03),
    each(
        "ListenerSet",
        "more",
        "edge",
        f"parentRef: {{{FRONT_REF}}}, listeners: [{{name: more, port: 80, protocol: HTTP, hostname: more.example.com, {ALL}}}]",
        f"parentRef: {{{FRONT_REF}}}, listeners: [{{name: more, port: 80, protocol: HTTP, {ALL}}}, {tls('safe', '{name: c}', 'x.example.com')}]",
        f"parentRef: {{name: elsewhere, namespace: edge}}, listeners: [{{name: more, port: 80, protocol: HTTP, hostname: more.example.com, {ALL}}}]",
    ),
    one_of(
        *(
            gateway_object(
                "ListenerSet",
                "less",
                f"parentRef: {{{FRONT_REF}}}, listeners: [{{name: less, port: 80, protocol: HTTP, hostname: more.example.com, {ALL}}}]",
                day=day,
            )
            for day in (3, 1)
        )
    ),
    each(
        "HTTPRoute",
        "web",
        "a",
        f"parentRefs: [{{{FRONT_REF}}}], rules: [{{matches: [{{path: {{value: /x}}}}], backendRefs: [{{name: api, namespace: b, port: 80}}]}}]",
        f"parentRefs: [{{{FRONT_REF}}}], hostnames: [x.example.com], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]",
        f"parentRefs: [{{{FRONT_REF}, sectionName: narrow}}, {WEB}], hostnames: [x.example.com, y.org], rules: [{{backendRefs: [{{name: gone, port: 80}}]}}]",
        "parentRefs: [{name: more, namespace: edge, kind: ListenerSet}], rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: y.org}}]}]",
        "parentRefs: [{name: vm, kind: ServiceEntry, group: networking.istio.io}], rules: [{backendRefs: [{name: vm.example.com, kind: Hostname, group: networking.istio.io, port: 80}]}]",
    ),
    each(
        "HTTPRoute",
        "set",
        "a",
        "parentRefs: [{name: more, namespace: edge, kind: ListenerSet}], rules: [{backendRefs: [{name: web, port: 80}]}]",
        day=3,
    ),
    each(
        "HTTPRoute",
        "later",
        "b",
        f"parentRefs: [{{{FRONT_REF}}}], hostnames: [x.example.com], rules: [{{name: later, matches: [{{path: {{type: Exact, value: /x}}}}], backendRefs: [{{name: api, port: 80}}]}}]",
        f"parentRefs: [{WEB}], rules: [{{matches: [{{path: {{value: /from-b}}}}], backendRefs: [{{name: api, port: 80}}]}}]",
        "parentRefs: [{name: api, kind: Service, group: '', port: 80}], rules: [{backendRefs: [{name: web, namespace: a, port: 80}]}]",
        day=2,
    ),
    each(
        "GRPCRoute",
        "calls",
        "b",
        f"parentRefs: [{{{FRONT_REF}}}], hostnames: [x.example.com], rules: [{{matches: [{{method: {{service: s}}}}], backendRefs: [{{name: api, port: 80}}]}}]",
        "parentRefs: [{name: api, kind: Service, group: ''}], rules: [{backendRefs: [{name: api, port: 80}]}]",
    ),
    each(
        "TCPRoute",
        "sql",
        "b",
        f"parentRefs: [{{{FRONT_REF}, sectionName: sql}}], rules: [{{backendRefs: [{{name: db, port: 9000}}]}}]",
        "parentRefs: [{name: db, kind: Service, group: ''}], rules: [{backendRefs: [{name: api, port: 80}]}]",
    ),
    each(
        "TLSRoute",
        "names",
        "b",
        f"parentRefs: [{{{FRONT_REF}}}], hostnames: [x.example.com], rules: [{{backendRefs: [{{name: db, port: 9000}}]}}]",
        f"parentRefs: [{{{FRONT_REF}}}], hostnames: ['*.com'], rules: [{{backendRefs: [{{name: web, namespace: a, port: 80}}]}}]",
    ),
    *(
        each(
            "ReferenceGrant",
            "allow",
            namespace,
            *(
                f"from: [{{group: {API[:-3]}, kind: {source}, namespace: {other}}}], to: [{{group: '', kind: {target}}}]"
                for source, other, target in grants
            ),
            api=f"{API[:-3]}/v1beta1",
        )
        for namespace, grants in (
            (
                "b",
                (
                    ("HTTPRoute", "a", "Service"),
                    ("HTTPRoute", "c", "Service"),
                    ("HTTPRoute", "a", "Service, name: other"),
                ),
            ),
            (
                "a",
                (
                    ("Gateway", "edge", "Secret"),
                    ("TLSRoute", "b", "Service"),
                    ("Gateway", "edge", "Secret, name: other"),
                ),
            ),
        )
    ),
    each(
        "BackendTLSPolicy",
        "api",
        "b",
        "targetRefs: [{group: '', kind: Service, name: api}], validation: {wellKnownCACertificates: System, hostname: x.com}",
        "targetRefs: [{group: '', kind: Service, name: api, sectionName: http}], validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: c}], hostname: x.com}",
        "targetRefs: [{group: '', kind: Service, name: db}], validation: {wellKnownCACertificates: System, hostname: y.com}",
    ),
    each(
        "BackendTLSPolicy",
        "late",
        "b",
        "targetRefs: [{group: '', kind: Service, name: api}], validation: {wellKnownCACertificates: System, hostname: late.com}",
        "targetRefs: [{group: networking.istio.io, kind: ServiceEntry, name: more}], validation: {wellKnownCACertificates: System, hostname: late.com}",
        day=2,
    ),
    each(
        "BackendTLSPolicy",
        "front",
        "edge",
        "targetRefs: [{group: '', kind: Service, name: front, sectionName: http}], validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: c}], hostname: z.com}",
    ),
    each(
        "XBackendTrafficPolicy",
        "api",
        "b",
        *(
            f"targetRefs: [{{group: '', kind: Service, name: {name}}}], retryConstraint: {{budget: {{percent: {share}}}}}"
            for name, share in (("api", 40), ("db", 40), ("api", 60))
        ),
        api="gateway.networking.x-k8s.io/v1alpha1",
    ),
    each(
        "UDPRoute",
        "dns",
        "b",
        f"parentRefs: [{{{FRONT_REF}}}], rules: [{{backendRefs: [{{name: db, port: 53}}]}}]",
        api=f"{API[:-3]}/v1alpha2",
    ),
    each(
        "XBackend",
        "out",
        "b",
        "type: ExternalHostname, externalHostname: {hostname: out.example.net}, port: {port: 443}, tls: {mode: ServerOnly}",
        "type: ExternalHostname, externalHostname: {hostname: out.example.net}, port: {port: 80}, protocol: HTTP2",
        "type: ExternalHostname, externalHostname: {hostname: out.b.svc.cluster.local}, port: {port: 80}",
        api="gateway.networking.x-k8s.io/v1alpha1",
    ),
    each(
        "HTTPRoute",
        "outwards",
        "b",
        *(
            f"parentRefs: [{{{FRONT_REF}}}], rules: [{{matches: [{{path: {{value: /out}}}}], backendRefs: [{{group: gateway.networking.x-k8s.io, kind: XBackend, name: out{port}}}]}}]"
            for port in ("", ", port: 80")
        ),
    ),
    each(
        "InferencePool",
        "llm",
        "b",
        *(
            f"selector: {{matchLabels: {{app: {app}}}}}, targetPorts: [{{number: 8000}}], endpointPickerRef: {{name: api, port: {{number: 80}}}}"
            for app in ("llm", "other")
        ),
        api="inference.networking.k8s.io/v1",
    ),
    one_of(
        *(
            make(
                "Service",
                "llm-ip-487b9104",
                "{clusterIP: None, selector: {app: llm}, ports: [{name: http-0, port: 54321, targetPort: 8000}]}",
                "b",
                labels=labels,
            )
            for labels in (
                f"{{{POOLED}, istio.io/inferencepool-extension-port: '80'}}",
                f"{{{POOLED}, istio.io/inferencepool-extension-port: '81'}}",
                "{}",
            )
        )
    ),
    each(
        "HTTPRoute",
        "chat",
        "b",
        *(
            f"parentRefs: [{{{FRONT_REF}}}], rules: [{{matches: [{{path: {{value: {prefix}}}}}], backendRefs: [{{group: inference.networking.k8s.io, kind: InferencePool, name: llm}}]}}]"
            for prefix in ("/chat", "/talk")
        ),
    ),
    cluster_wide(
        "IngressClass", "ours", INGRESS, "controller: istio.io/ingress-controller", "controller: example.com/other"
    ),
    each(
        "Ingress",
        "in",
        "a",
        f"ingressClassName: ours, tls: [{{secretName: c}}], rules: [{{host: in.example.com, http: {{paths: [{path('/')}]}}}}]",
        f"ingressClassName: ours, rules: [{{host: in.example.com, http: {{paths: [{path('/x', 'name: http')}]}}}}, {{http: {{paths: [{path('/y', kind='Exact')}]}}}}]",
        api=INGRESS,
    ),
]
