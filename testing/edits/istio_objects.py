"""Objects of Istio's kinds for random edits of a mesh."""

from __future__ import annotations

from typing import Any

from pilot.config.security.request_authentication import JwksKey
from testing.edits.slot import Slot, one_of
from testing.mesh.objects import make


def each(kind: str, name: str, namespace: str, *specs: str, **more: Any) -> Slot:
    """Return a slot of an object with each spec, as YAML without the outer braces."""
    return one_of(*(make(kind, name, f"{{{spec}}}", namespace, **more) for spec in specs))


def to(host: str, subset: str = "") -> str:
    """Return the `route` of an HTTP, TCP or TLS rule."""
    return f"route: [{{destination: {{host: {host}{', subset: ' + subset if subset else ''}}}}}]"


API = "api.b.svc.cluster.local"
EXTERNAL = "ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}]"
RULES = (
    f"host: {API}, subsets: [{{name: v1, labels: {{version: v1}}}}, {{name: v2, labels: {{version: v2}}, trafficPolicy: {{tls: {{mode: DISABLE}}}}}}]",
    f"host: {API}, trafficPolicy: {{outlierDetection: {{consecutive5xxErrors: 3}}, loadBalancer: {{localityLbSetting: {{distribute: [{{from: r1/*, to: {{r1/*: 80, r2/*: 20}}}}]}}}}}}",
    f"host: {API}, trafficPolicy: {{loadBalancer: {{consistentHash: {{useSourceIp: true}}}}, tls: {{mode: SIMPLE}}}}",
    f"host: {API}, exportTo: ['.'], trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: 7}}}}}}",
    f"host: {API}, workloadSelector: {{matchLabels: {{app: web}}}}, trafficPolicy: {{loadBalancer: {{simple: RANDOM}}}}",
    f"host: {API}, trafficPolicy: {{tunnel: {{protocol: POST, targetHost: t.example.com, targetPort: 443}}}}",
    f"host: {API}, trafficPolicy: {{outlierDetection: {{minHealthPercent: 10}}, loadBalancer: {{localityLbSetting: {{failoverPriority: [app, topology.istio.io/network]}}}}}}",
    f"host: {API}, workloadSelector: {{matchLabels: {{version: v1}}}}, trafficPolicy: {{loadBalancer: {{simple: ROUND_ROBIN}}}}",
    f"host: {API}, trafficPolicy: {{outlierDetection: {{consecutive5xxErrors: 4}}, loadBalancer: {{localityLbSetting: {{failoverPriority: [version]}}}}}}",
    "host: x.example.com, trafficPolicy: {tls: {mode: SIMPLE}, loadBalancer: {simple: LEAST_REQUEST}}",
)
WILDCARDS = (
    "host: '*.b.svc.cluster.local', trafficPolicy: {connectionPool: {tcp: {maxConnections: 9}}}",
    "host: '*.svc.cluster.local', trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: h}}}",
    "host: '*.b.svc.cluster.local', trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: h}}}",
    "host: '*.example.com', trafficPolicy: {tls: {mode: SIMPLE}}",
    "host: '*.example.com', trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: h}}}",
    "host: '*.b.svc.cluster.local', trafficPolicy: {outlierDetection: {consecutive5xxErrors: 2}, loadBalancer: {localityLbSetting: {failover: [{from: r1, to: r2}]}}}",
)
MATCHED = "match: [{uri: {prefix: /x}, sourceLabels: {app: web}}]"
KEY_SET = JwksKey("", "https://issuer.example.com/keys")
EGRESS = (
    "egress: [{hosts: ['./*', 'b/*']}]",
    "egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
    "egress: [{hosts: ['./*']}], workloadSelector: {labels: {app: web}}",
    "egress: [{port: {number: 9000, protocol: TCP, name: t}, bind: 127.0.0.1, captureMode: NONE, hosts: ['*/*']}, {hosts: ['./*']}]",
    "egress: [{port: {number: 80, protocol: HTTP, name: h}, hosts: ['b/*']}, {hosts: ['*/x.example.com', '~/*']}]",
    "ingress: [{port: {number: 8080, protocol: HTTP, name: h}, defaultEndpoint: '127.0.0.1:7001'}], egress: [{hosts: ['*/*']}]",
    f"egress: [{{hosts: ['*/*']}}], outboundTrafficPolicy: {{mode: ALLOW_ANY, egressProxy: {{host: {API}, port: {{number: 80}}}}}}",
    "egress: [{hosts: ['*/*']}], inboundConnectionPool: {http: {http1MaxPendingRequests: 3}}",
    "egress: [{hosts: ['*/*']}], workloadSelector: {labels: {version: v1}}",
)
ISTIO = [
    each("DestinationRule", "api", "b", *RULES),
    each("DestinationRule", "api", "a", *RULES, day=2),
    each("DestinationRule", "later", "b", *RULES, day=4),
    each("DestinationRule", "root", "istio-system", *RULES, *WILDCARDS),
    each("DestinationRule", "wide", "a", *WILDCARDS, day=6),
    each(
        "DestinationRule",
        "shown",
        "a",
        "host: x.example.com, exportTo: [b], trafficPolicy: {connectionPool: {tcp: {maxConnections: 2}}}",
        "host: x.example.com, exportTo: [c]",
        day=3,
    ),
    each(
        "DestinationRule",
        "head",
        "a",
        "host: head, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: h}}}",
        "host: web, subsets: [{name: v2, labels: {version: v2}}]",
    ),
    each(
        "VirtualService",
        "api",
        "b",
        f"hosts: [api], http: [{{{to('api', 'v1')}}}]",
        f"hosts: [{API}], http: [{{{MATCHED}, {to('api')}}}, {{{to('web.a.svc.cluster.local')}}}]",
        "hosts: [api], exportTo: ['.'], http: [{redirect: {uri: /y}}]",
        f"hosts: [api], tcp: [{{match: [{{port: 9000}}], {to('db')}}}]",
        f"hosts: [api], http: [{{{MATCHED.replace('web', 'api')}, timeout: 2s, {to('api', 'v2')}}}]",
    ),
    each(
        "VirtualService",
        "api",
        "a",
        f"hosts: [{API}], http: [{{timeout: 1s, {to('web')}}}]",
        f"hosts: [web], http: [{{{to('head')}}}]",
        f"hosts: [web, alias], http: [{{{to('alias')}}}]",
        day=2,
    ),
    each(
        "VirtualService",
        "wild",
        "a",
        f"hosts: ['*.example.com'], http: [{{{to('web')}}}]",
        f"hosts: ['*.b.svc.cluster.local'], http: [{{{to('db.b.svc.cluster.local')}}}]",
        f"hosts: ['*.example.com'], tls: [{{match: [{{sniHosts: ['*.example.com']}}], {to('web')}}}]",
        day=7,
    ),
    each(
        "VirtualService",
        "l4",
        "b",
        f"hosts: [db], tcp: [{{match: [{{sourceLabels: {{app: web}}}}], {to('api')}}}, {{{to('db')}}}]",
        f"hosts: [x.example.com], tls: [{{match: [{{sniHosts: [x.example.com], port: 443}}], {to('y.example.com')}}}]",
        f"hosts: [db], tcp: [{{match: [{{destinationSubnets: [10.96.0.0/24]}}], {to('api')}}}]",
        day=4,
    ),
    each(
        "VirtualService",
        "only",
        "c",
        f"hosts: ['*.example.com'], gateways: [edge/gw], http: [{{{to('db.b.svc.cluster.local')}}}]",
        f"hosts: [x.example.com], gateways: [edge/gw, mesh], http: [{{{to(API)}}}]",
    ),
    each(
        "VirtualService",
        "root",
        "a",
        "hosts: [x.example.com], http: [{match: [{uri: {prefix: /d}}], delegate: {name: leaf, namespace: b}}]",
        "hosts: [web], http: [{delegate: {name: leaf, namespace: b}}]",
        day=7,
    ),
    each(
        "VirtualService",
        "leaf",
        "b",
        f"http: [{{{to('api')}}}]",
        "http: [{directResponse: {status: 418}}]",
        f"http: [{{match: [{{sourceLabels: {{version: v1}}}}], {to('db')}}}]",
        "exportTo: ['.'], http: [{redirect: {uri: /z}}]",
        day=8,
    ),
    each(
        "VirtualService",
        "in",
        "a",
        f"hosts: [x.example.com], gateways: [edge/gw], http: [{{{to('web')}}}]",
        f"hosts: [x.example.com], gateways: [edge/gw, mesh], http: [{{timeout: 1s, {to(API)}}}]",
        f"hosts: ['*.example.com'], gateways: [own, edge/gw], http: [{{{to('web', 'v2')}}}]",
        f"hosts: [x.example.com], gateways: [edge/gw], tls: [{{match: [{{sniHosts: [x.example.com], port: 443}}], {to(API)}}}]",
        f"hosts: ['*'], gateways: [edge/gw], tcp: [{{match: [{{port: 9000}}], {to('db.b.svc.cluster.local')}}}]",
        f"hosts: ['*'], gateways: [edge/gw], http: [{{mirror: {{host: {API}}}, {to('web')}}}]",
    ),
    each(
        "ServiceEntry",
        "ext",
        "c",
        f"hosts: [x.example.com], location: MESH_EXTERNAL, resolution: DNS, {EXTERNAL}",
        f"hosts: [x.example.com, y.example.com], location: MESH_EXTERNAL, resolution: STATIC, addresses: [10.96.0.77], {EXTERNAL}, endpoints: [{{address: 10.9.9.9, locality: r2/z2}}]",
        f"hosts: ['*.example.com'], resolution: NONE, {EXTERNAL}",
        f"hosts: [x.example.com], exportTo: ['.'], resolution: DNS, {EXTERNAL}",
        f"hosts: ['*.example.com'], resolution: DYNAMIC_DNS, {EXTERNAL}",
    ),
    each(
        "ServiceEntry",
        "more",
        "b",
        f"hosts: [y.example.com], resolution: DNS, {EXTERNAL}, endpoints: [{{address: e.example.com}}]",
        f"hosts: [x.example.com], resolution: STATIC, {EXTERNAL}, endpoints: [{{address: 10.9.9.8, network: net2}}]",
        f"hosts: [{API}], resolution: STATIC, location: MESH_INTERNAL, {EXTERNAL}, endpoints: [{{address: 10.9.9.7}}]",
        day=3,
    ),
    each(
        "ServiceEntry",
        "vm",
        "a",
        "hosts: [vm.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: vm}}",
        "hosts: [vm.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], workloadSelector: {labels: {app: web}}",
        "hosts: [vm.example.com], resolution: STATIC, ports: [{number: 9000, name: tcp, protocol: TCP}], endpoints: [{address: 10.9.0.1}, {address: 10.1.0.1, labels: {app: vm}}]",
        "hosts: [vm.example.com], resolution: STATIC, ports: [{number: 9000, name: tcp, protocol: TCP}], endpoints: [{address: 10.9.0.1, ports: {tcp: 9001}}, {address: 10.1.0.1}]",
        "hosts: [vm.example.com], exportTo: ['.'], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.9.0.2, weight: 3}]",
    ),
    each(
        "ServiceEntry",
        "vm-too",
        "a",
        "hosts: [vm.example.com], resolution: STATIC, ports: [{number: 9000, name: tcp, protocol: TCP}], endpoints: [{address: 10.9.0.7}]",
        "hosts: [vm.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: web}}",
        day=5,
    ),
    each(
        "ServiceEntry",
        "far",
        "c",
        "hosts: [far.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: far}}",
    ),
    each(
        "WorkloadEntry",
        "vm",
        "a",
        "address: 10.9.0.1, labels: {app: vm}",
        "address: 10.9.0.2, labels: {app: vm}, weight: 5, network: net2",
        "address: 10.9.0.1, labels: {app: web}, serviceAccount: sa, locality: r1/z1",
    ),
    each(
        "WorkloadEntry",
        "extra",
        "b",
        "address: 10.9.0.3, labels: {app: api}",
        "address: 10.9.0.3, labels: {app: db, version: v1}, ports: {http: 8081}",
    ),
    each("WorkloadEntry", "api", "b", "address: 10.1.0.2, labels: {app: db}"),
    one_of(
        *(
            make("ProxyConfig", "p", spec, "a") | {"apiVersion": "networking.istio.io/v1beta1"}
            for spec in ("{concurrency: 1}", "{concurrency: 2}")
        )
    ),
    each(
        "WorkloadGroup",
        "vm",
        "a",
        "template: {serviceAccount: one}",
        "metadata: {labels: {app: vm}}, template: {serviceAccount: two}",
    ),
    each("Sidecar", "default", "a", *EGRESS),
    each("Sidecar", "web", "a", *EGRESS, day=2),
    each("Sidecar", "default", "b", *EGRESS),
    *(
        each("Sidecar", name, "c", *specs, day=day)._replace(empty=0.2)
        for day, (name, specs) in enumerate(
            (
                ("all", ("egress: [{hosts: ['*/*']}], inboundConnectionPool: {http: {http1MaxPendingRequests: 5}}",)),
                (
                    "some",
                    (
                        "egress: [{hosts: ['*/x.example.com', '*/y.example.com']}], workloadSelector: {labels: {app: far}}",
                        "egress: [{hosts: ['*/x.example.com', '*/y.example.com']}]",
                    ),
                ),
            ),
            1,
        )
    ),
    each("Sidecar", "default", "istio-system", *(e for e in EGRESS if "workloadSelector" not in e), day=9),
    each(
        "Gateway",
        "gw",
        "edge",
        "selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]",
        "selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.example.com], tls: {mode: SIMPLE, credentialName: c}}]",
        "selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.example.com], tls: {mode: SIMPLE, credentialName: 'kubernetes-gateway://edge/c'}}]",
        "selector: {istio: egress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [x.example.com]}]",
        "selector: {istio: ingress}, servers: [{port: {number: 15443, name: tls, protocol: TLS}, hosts: ['*.local'], tls: {mode: AUTO_PASSTHROUGH}}]",
        "selector: {istio: ingress}, servers: [{port: {number: 443, name: tls, protocol: TLS}, hosts: ['*'], tls: {mode: PASSTHROUGH}}, {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}]",
        "selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: ISTIO_MUTUAL}}, {port: {number: 80, name: http, protocol: HTTP}, hosts: ['*'], tls: {httpsRedirect: true}}]",
    ),
    each(
        "Gateway",
        "own",
        "a",
        "selector: {istio: egress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]",
        "servers: [{port: {number: 8088, name: http, protocol: HTTP}, hosts: ['a/x.example.com']}]",
        day=2,
    ),
    *(
        each(
            "PeerAuthentication",
            "p",
            namespace,
            *(f"mtls: {{mode: {mode}}}" for mode in ("STRICT", "PERMISSIVE", "DISABLE")),
            "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: DISABLE}}",
            "selector: {matchLabels: {app: api}}, mtls: {mode: DISABLE}",
            *(f"selector: {{matchLabels: {{app: web}}}}, mtls: {{mode: {mode}}}" for mode in ("STRICT", "PERMISSIVE")),
            day=day,
        )
        for day, namespace in enumerate(("a", "b", "istio-system"), 1)
    ),
    *(
        each(
            "RequestAuthentication",
            "jwt",
            namespace,
            "jwtRules: [{issuer: one, jwks: '{\"keys\": []}'}]",
            "selector: {matchLabels: {app: web}}, jwtRules: [{issuer: two, jwks: '{\"keys\": []}', audiences: [x]}]",
            "selector: {matchLabels: {istio: ingress}}, jwtRules: [{issuer: three, jwks: '{\"keys\": []}', forwardOriginalToken: true}]",
            f"jwtRules: [{{issuer: four, jwksUri: '{KEY_SET.uri}'}}]",
        )
        for namespace in ("a", "edge", "istio-system")
    ),
    *(
        each(
            "AuthorizationPolicy",
            "who",
            namespace,
            "rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/default]}}], to: [{operation: {paths: ['/x/{*}']}}]}]",
            "action: DENY, rules: [{to: [{operation: {ports: ['9000']}}]}]",
            "selector: {matchLabels: {app: web}}, action: AUDIT, rules: [{when: [{key: 'request.headers[h]', values: [x]}]}]",
            "selector: {matchLabels: {istio: ingress}}, action: CUSTOM, provider: {name: judge}, rules: [{}]",
            "",
            day=day,
        )
        for day, namespace in enumerate(("a", "edge", "istio-system"), 1)
    ),
    *(
        each(
            "WasmPlugin",
            "w",
            namespace,
            "url: 'oci://r.example.com/w:1', phase: AUTHN, pluginConfig: {a: 1}",
            "url: 'oci://r.example.com/w:1', imagePullSecret: pull, failStrategy: FAIL_OPEN, match: [{mode: SERVER, ports: [{number: 8080}, {number: 80}]}]",
            "url: 'file:///w.wasm', type: NETWORK, phase: AUTHZ, priority: 3, selector: {matchLabels: {app: web}}",
            "url: 'file:///w.wasm', type: NETWORK, match: [{mode: CLIENT}, {mode: SERVER, ports: [{number: 9000}]}]",
            "url: 'https://w.example.com', selector: {matchLabels: {istio: ingress}}, match: [{ports: [{number: 80}]}]",
            day=day,
        )
        for day, namespace in enumerate(("a", "edge", "istio-system"), 1)
    ),
    *(
        each(
            "Telemetry",
            "what",
            namespace,
            "accessLogging: [{providers: [{name: als}, {name: envoy}]}], tracing: [{providers: [{name: z}], randomSamplingPercentage: 5}]",
            "metrics: [{providers: [{name: prometheus}], overrides: [{match: {metric: REQUEST_COUNT, mode: CLIENT}, tagOverrides: {a: {value: request.host}}}]}]",
            "selector: {matchLabels: {app: web}}, accessLogging: [{match: {mode: SERVER}, disabled: true}, {providers: [{name: als}], filter: {expression: response.code > 4}}]",
            "selector: {matchLabels: {istio: ingress}}, tracing: [{customTags: {t: {header: {name: h}}}, enableIstioTags: false, useRequestIdForTraceSampling: false}]",
            "tracing: [{match: {mode: CLIENT}, disableSpanReporting: true}], metrics: [{overrides: [{disabled: true, match: {mode: SERVER}}], reportingInterval: 3s}]",
            day=day,
        )
        for day, namespace in enumerate(("a", "edge", "istio-system"), 1)
    ),
    *(
        each(
            "TrafficExtension",
            "t",
            namespace,
            "lua: {inlineCode: 'x = 1'}, phase: STATS",
            "lua: {inlineCode: 'x = 2'}, match: [{mode: CLIENT, ports: [{number: 80}]}], selector: {matchLabels: {app: web}}",
            "wasm: {url: r.example.com/t, imagePullSecret: c}, priority: 7",
        )
        for namespace in ("a", "istio-system")
    ),
    each(
        "Telemetry",
        "older",
        "a",
        "metrics: [{providers: [{name: prometheus}]}]",
        "selector: {matchLabels: {app: web}}, tracing: [{providers: [{name: z}]}]",
    ),
    one_of(
        *(
            make(
                "AuthorizationPolicy",
                "tried",
                "{rules: [{from: [{source: {namespaces: [b]}}]}]}",
                "a",
                annotations=f"{{istio.io/dry-run: '{dry}'}}",
            )
            for dry in ("true", "false")
        )
    ),
]
