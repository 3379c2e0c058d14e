"""Requests and expected results for the features of the Gateway API, named as in the conformance profiles, and the
objects for them.

https://gateway-api.sigs.k8s.io/concepts/conformance/#2-supported-features
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testing.edits.gateway_objects import gateway_object
from testing.mesh.objects import Plain, make
from testing.mesh.traffic import Request
from testing.security.credentials import Authority, tls_secret

ALL = "allowedRoutes: {namespaces: {from: All}}"
LISTENERS = f"""[
  {{name: any, port: 80, protocol: HTTP, {ALL}}},
  {{name: wild, port: 80, protocol: HTTP, hostname: '*.x.com', {ALL}}},
  {{name: exact, port: 80, protocol: HTTP, hostname: a.x.com, {ALL}}},
  {{name: narrow, port: 8080, protocol: HTTP, hostname: '*.n.com'}},
  {{name: team, port: 8081, protocol: HTTP, allowedRoutes: {{namespaces: {{from: Selector, selector: {{matchLabels: {{team: blue}}}}}}}}}},
  {{name: safe, port: 443, protocol: HTTPS, hostname: '*.x.com', tls: {{certificateRefs: [{{name: cert}}]}}, {ALL}}},
  {{name: unsafe, port: 444, protocol: HTTPS, tls: {{certificateRefs: [{{name: ghost}}]}}, {ALL}}},
  {{name: names, port: 8443, protocol: TLS, hostname: '*.db.com', tls: {{mode: Passthrough}}, {ALL}}},
  {{name: ended, port: 8444, protocol: TLS, hostname: end.com, tls: {{mode: Terminate, certificateRefs: [{{name: cert}}]}}, {ALL}}},
  {{name: sql, port: 5432, protocol: TCP, {ALL}}},
  {{name: lost, port: 5433, protocol: TCP, {ALL}}}
]"""
PORTS = (80, 443, 444, 8080, 8081, 8082, 8443, 8444, 5432, 5433)
AT = "parentRefs: [{name: gw, namespace: edge}]"


def backend_refs(name: str = "web", port: int = 80, more: str = "") -> str:
    return f"backendRefs: [{{name: {name}, port: {port}{more}}}]"


def rule(path: str, action: str, kind: str = "PathPrefix", more: str = "") -> str:
    return f"{{matches: [{{path: {{type: {kind}, value: '{path}'}}{more}}}], {action}}}"


def with_filter(kind: str, field: str, settings: str, rest: str = "backendRefs: [{name: web, port: 80}]") -> str:
    return f"filters: [{{type: {kind}, {field}: {settings}}}], {rest}"


def redirect(settings: str) -> str:
    return with_filter("RequestRedirect", "requestRedirect", f"{{{settings}}}", "name: r")


def rewrite(settings: str) -> str:
    return with_filter("URLRewrite", "urlRewrite", f"{{{settings}}}")


MIRROR = "{type: RequestMirror, requestMirror: {backendRef: {name: %s, port: 80}%s}}"
ONE_SET = "set: [{name: x-a, value: one}]"
SPLIT = "rules: [{backendRefs: [{name: one, port: 80, weight: 3}, {name: two, port: 80}]}]"
RULES = [
    rule("/exact", backend_refs("one"), "Exact"),
    rule("/prefix", backend_refs("one")),
    rule("/prefix/longer", backend_refs("two")),
    rule("/slash/", backend_refs("one")),
    rule("/re/[0-9]+", backend_refs("one"), "RegularExpression"),
    rule("/m", backend_refs("one"), more=", method: POST"),
    rule("/m", backend_refs("two"), more=", method: GET"),
    rule("/h", backend_refs("one"), more=", headers: [{name: x-a, value: one}]"),
    rule("/h", backend_refs("two"), more=", headers: [{name: x-a, value: one}, {name: x-b, value: two}]"),
    rule("/h", backend_refs("three"), more=", headers: [{name: x-c, value: '[0-9]+', type: RegularExpression}]"),
    rule("/q", backend_refs("one"), more=", queryParams: [{name: a, value: '1'}]"),
    rule("/q", backend_refs("two"), more=", queryParams: [{name: a, value: '1'}, {name: b, value: '2'}]"),
    rule("/q", backend_refs("three"), more=", queryParams: [{name: c, value: '[a-z]+', type: RegularExpression}]"),
    f"{{matches: [{{path: {{value: /or1}}}}, {{path: {{value: /or2}}}}], {backend_refs('one')}}}",
    rule(
        "/w",
        "backendRefs: [{name: one, port: 80, weight: 1}, {name: two, port: 80, weight: 3}, {name: three, port: 80, weight: 0}]",
    ),
    rule("/zero", backend_refs("one", more=", weight: 0")),
    rule("/none", "name: none"),
    rule("/ghost", backend_refs("ghost")),
    rule("/half", "backendRefs: [{name: one, port: 80}, {name: one, namespace: closed, port: 80}]"),
    rule("/closed", backend_refs("one", more=", namespace: closed")),
    rule("/open", backend_refs("one", more=", namespace: open")),
    rule("/open2", backend_refs("two", more=", namespace: open")),
    rule("/kind", backend_refs("one", more=", kind: Bucket, group: x.io")),
    rule("/named", f"name: a-name, {backend_refs('one')}"),
    rule("/r-host", redirect("hostname: new.com")),
    rule("/r-port", redirect("port: 8443")),
    rule("/r-scheme", redirect("scheme: https")),
    rule("/r-both", redirect("scheme: https, port: 8443, hostname: new.com")),
    rule("/r-own", redirect("scheme: https, port: 443")),
    rule("/r-full", redirect("path: {type: ReplaceFullPath, replaceFullPath: /new}")),
    rule("/r-pre", redirect("path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}")),
    *(rule(f"/r-{code}", redirect(f"statusCode: {code}, hostname: new.com")) for code in (301, 302, 303, 307, 308)),
    rule("/u-host", rewrite("hostname: in.com")),
    rule("/u-full", rewrite("path: {type: ReplaceFullPath, replaceFullPath: /new}")),
    rule("/u-pre", rewrite("path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}")),
    rule("/u-cut", rewrite("path: {type: ReplacePrefixMatch, replacePrefixMatch: /}")),
    rule("/u-slash", rewrite("path: {type: ReplacePrefixMatch, replacePrefixMatch: /new/}")),
    rule("/set", with_filter("RequestHeaderModifier", "requestHeaderModifier", "{set: [{name: X-A, value: one}]}")),
    rule(
        "/add",
        with_filter(
            "RequestHeaderModifier",
            "requestHeaderModifier",
            "{add: [{name: x-a, value: one}, {name: x-b, value: two}]}",
        ),
    ),
    rule("/remove", with_filter("RequestHeaderModifier", "requestHeaderModifier", "{remove: [x-a]}")),
    rule(
        "/twice",
        with_filter(
            "RequestHeaderModifier",
            "requestHeaderModifier",
            "{set: [{name: x-a, value: first}, {name: X-A, value: second}]}",
        ),
    ),
    rule(
        "/answer",
        with_filter(
            "ResponseHeaderModifier",
            "responseHeaderModifier",
            f"{{{ONE_SET}, add: [{{name: x-b, value: two}}], remove: [x-c]}}",
        ),
    ),
    rule(
        "/backend",
        f"backendRefs: [{{name: web, port: 80, filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{{ONE_SET}}}}}]}}]",
    ),
    rule("/copy", f"filters: [{MIRROR % ('one', '')}], {backend_refs()}"),
    rule("/copies", f"filters: [{MIRROR % ('one', '')}, {MIRROR % ('two', '')}], {backend_refs()}"),
    rule("/some", f"filters: [{MIRROR % ('one', ', percent: 20')}], {backend_refs()}"),
    rule("/part", f"filters: [{MIRROR % ('one', ', fraction: {numerator: 1, denominator: 8}')}], {backend_refs()}"),
    rule("/copy-ghost", f"filters: [{MIRROR % ('ghost', '')}], {backend_refs()}"),
    rule("/t-request", f"timeouts: {{request: 2s}}, {backend_refs()}"),
    rule("/t-backend", f"timeouts: {{backendRequest: 1s}}, {backend_refs()}"),
    rule("/t-both", f"timeouts: {{request: 4s, backendRequest: 1s}}, retry: {{attempts: 3}}, {backend_refs()}"),
    rule("/t-none", f"timeouts: {{request: 0s}}, {backend_refs()}"),
    rule("/retry", f"retry: {{codes: [500, 503], attempts: 4, backoff: 10ms}}, {backend_refs()}"),
    rule("/retry-default", f"retry: {{codes: [502]}}, {backend_refs()}"),
    rule("/retry-off", f"retry: {{attempts: 0}}, {backend_refs()}"),
]
GRPC = f"""[
  {{matches: [{{method: {{service: s.S, method: M}}}}], {backend_refs("one")}}},
  {{matches: [{{method: {{service: s.S}}}}], {backend_refs("two")}}},
  {{matches: [{{method: {{method: Only}}}}], {backend_refs("three")}}},
  {{matches: [{{method: {{service: 're[.].*', type: RegularExpression}}}}], {backend_refs("one")}}},
  {{matches: [{{method: {{service: h.H}}, headers: [{{name: x-a, value: one}}]}}], {backend_refs("three")}}},
  {{matches: [{{method: {{service: w.W}}}}], backendRefs: [{{name: one, port: 80, weight: 1}}, {{name: two, port: 80, weight: 1}}]}},
  {{matches: [{{method: {{service: z.Z}}}}]}}
]"""


def routes() -> Iterator[tuple[str, str, str, str]]:
    """Yield the kind, name, spec and namespace of each route."""
    yield "HTTPRoute", "main", f"{AT}, hostnames: [main.org], rules: [{', '.join(RULES)}]", "edge"
    yield "HTTPRoute", "plain", f"{AT}, hostnames: [plain.org], rules: [{{{backend_refs('one')}}}]", "edge"
    yield "HTTPRoute", "wild", f"{AT}, hostnames: ['*.wild.org'], rules: [{{{backend_refs('one')}}}]", "edge"
    yield "HTTPRoute", "closer", f"{AT}, hostnames: [a.wild.org], rules: [{{{backend_refs('two')}}}]", "edge"
    yield (
        "HTTPRoute",
        "isolated",
        f"{AT}, hostnames: [a.x.com, b.x.com, c.org], rules: [{{{backend_refs('one')}}}]",
        "edge",
    )
    yield (
        "HTTPRoute",
        "section",
        f"{AT.replace('}', ', sectionName: exact}')}, rules: [{rule('/section', backend_refs('two'))}]",
        "edge",
    )
    yield (
        "HTTPRoute",
        "port",
        f"{AT.replace('}', ', port: 8080}')}, hostnames: [p.n.com, p.org], rules: [{{{backend_refs('one')}}}]",
        "edge",
    )
    yield (
        "HTTPRoute",
        "stranger",
        f"{AT.replace('}', ', sectionName: narrow}')}, hostnames: [s.n.com], rules: [{{{backend_refs('one')}}}]",
        "blue",
    )
    yield (
        "HTTPRoute",
        "blue",
        f"{AT.replace('}', ', sectionName: team}')}, hostnames: [blue.org], rules: [{{{backend_refs('one')}}}]",
        "blue",
    )
    yield (
        "HTTPRoute",
        "red",
        f"{AT.replace('}', ', sectionName: team}')}, hostnames: [red.org], rules: [{{{backend_refs('one')}}}]",
        "edge",
    )
    yield "HTTPRoute", "old", f"{AT}, hostnames: [both.org], rules: [{rule('/same', backend_refs('one'))}]", "edge"
    yield (
        "HTTPRoute",
        "new",
        f"{AT}, hostnames: [both.org], rules: [{rule('/same', backend_refs('two'))}, {rule('/same/more', backend_refs('two'))}]",
        "edge",
    )
    yield (
        "HTTPRoute",
        "set",
        f"parentRefs: [{{name: more, kind: ListenerSet}}], hostnames: [set.org], rules: [{{{backend_refs('one')}}}]",
        "edge",
    )
    yield (
        "HTTPRoute",
        "broken",
        f"{AT}, hostnames: [broken.org], rules: [{{filters: [{{type: ExtensionRef}}], {backend_refs('one')}}}]",
        "edge",
    )
    yield "GRPCRoute", "calls", f"{AT}, hostnames: [grpc.org], rules: {GRPC}", "edge"
    yield (
        "GRPCRoute",
        "beside",
        f"{AT}, hostnames: [both.org], rules: [{{matches: [{{method: {{service: s.S}}}}], {backend_refs('three')}}}]",
        "edge",
    )
    yield (
        "TLSRoute",
        "names",
        f"{AT.replace('}', ', sectionName: names}')}, hostnames: [a.db.com, '*.com'], rules: [{{{backend_refs('one')}}}]",
        "edge",
    )
    yield (
        "TLSRoute",
        "ended",
        f"{AT.replace('}', ', sectionName: ended}')}, hostnames: [end.com], rules: [{{{backend_refs('two')}}}]",
        "edge",
    )
    yield "TCPRoute", "sql", f"{AT.replace('}', ', sectionName: sql}')}, {SPLIT}", "edge"
    yield (
        "TCPRoute",
        "lost",
        f"{AT.replace('}', ', sectionName: lost}')}, rules: [{{{backend_refs('one', more=', weight: 0')}}}]",
        "edge",
    )


BACKENDS = [
    (name, namespace) for name in ("web", "one", "two", "three") for namespace in ("edge", "blue", "open", "closed")
]


def objects(targets: Mapping[int, int] | None = None) -> list[Plain]:
    """Return all objects of the table except the endpoints of the backends.

    `targets` maps ports of the gateway's Service to target ports, where they differ.
    """
    ports = ", ".join(f"{{name: p{n}, port: {n}, targetPort: {(targets or {}).get(n, n)}}}" for n in PORTS)
    services = [
        make("Service", name, "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}", namespace)
        for name, namespace in BACKENDS
    ]
    grant = "from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: edge}], to: [{group: '', kind: Service, name: one}]"
    gateway_fields = "gatewayClassName: istio, addresses: [{type: Hostname, value: front}], allowedListeners: {namespaces: {from: Same}}"
    return [
        make("Namespace", "blue", labels="{team: blue}"),
        *services,
        make("Service", "front", f"{{clusterIP: 10.96.0.2, selector: {{app: front}}, ports: [{ports}]}}", "edge"),
        make("Pod", "front-0", "{}", "edge", labels="{app: front}"),
        tls_secret("cert", Authority().issue("x.com"), "edge"),
        gateway_object("Gateway", "gw", f"{gateway_fields}, listeners: {LISTENERS}"),
        gateway_object(
            "ListenerSet", "more", "parentRef: {name: gw}, listeners: [{name: more, port: 8082, protocol: HTTP}]"
        ),
        gateway_object("ReferenceGrant", "g", grant, "open", api="gateway.networking.k8s.io/v1beta1"),
        *(
            gateway_object(kind, name, spec, namespace, day)
            for day, (kind, name, spec, namespace) in enumerate(routes(), 1)
        ),
    ]


ROWS = [  # feature, request: [method] host/path [header=value …] [port], expected result
    ("HTTPRoute", "main.org/exact", "one"),
    ("HTTPRoute", "main.org/exact/no", "404"),
    ("HTTPRoute", "main.org/exactly", "404"),
    ("HTTPRoute", "main.org/prefix", "one"),
    ("HTTPRoute", "main.org/prefix/", "one"),
    ("HTTPRoute", "main.org/prefix/x", "one"),
    ("HTTPRoute", "main.org/prefixed", "404"),
    ("HTTPRoute", "main.org/prefix/longer", "two"),
    ("HTTPRoute", "main.org/prefix/longer/x", "two"),
    ("HTTPRoute", "main.org/prefix/longerx", "one"),
    ("HTTPRoute", "main.org/slash", "one"),
    ("HTTPRoute", "main.org/slash/x", "one"),
    ("HTTPRoute", "main.org/slashx", "404"),
    ("HTTPRoute", "main.org/PREFIX", "404"),
    ("HTTPRoute", "main.org/", "404"),
    ("HTTPRoutePathRegularExpression", "main.org/re/12", "one"),
    ("HTTPRoutePathRegularExpression", "main.org/re/a", "404"),
    ("HTTPRouteMethodMatching", "POST main.org/m", "one"),
    ("HTTPRouteMethodMatching", "GET main.org/m", "two"),
    ("HTTPRouteMethodMatching", "PUT main.org/m", "404"),
    ("HTTPRoute", "main.org/h x-a=one", "one"),
    ("HTTPRoute", "main.org/h x-a=one x-b=two", "two"),
    ("HTTPRoute", "main.org/h x-a=two", "404"),
    ("HTTPRoute", "main.org/h", "404"),
    ("HTTPRouteHeaderRegularExpression", "main.org/h x-c=12", "three"),
    ("HTTPRouteHeaderRegularExpression", "main.org/h x-c=b", "404"),
    ("HTTPRouteQueryParamMatching", "main.org/q?a=1", "one"),
    ("HTTPRouteQueryParamMatching", "main.org/q?a=1&b=2", "two"),
    ("HTTPRouteQueryParamMatching", "main.org/q?a=2", "404"),
    ("HTTPRouteQueryParamMatching", "main.org/q?c=xyz", "three"),
    ("HTTPRouteQueryParamMatching", "main.org/q?c=1", "404"),
    ("HTTPRoute", "main.org/or1", "one"),
    ("HTTPRoute", "main.org/or2", "one"),
    ("HTTPRoute", "main.org/w", "1% one, 3% two"),
    ("HTTPRoute", "main.org/zero", "answers 500"),
    ("HTTPRoute", "main.org/none", "answers 500"),
    ("HTTPRoute", "main.org/ghost", "ghost"),
    ("HTTPRoute", "main.org/kind", "UnknownService"),
    ("ReferenceGrant", "main.org/closed", "UnknownService"),
    ("ReferenceGrant", "main.org/half", "1% one, 1% UnknownService"),
    ("ReferenceGrant", "main.org/open", "one.open"),
    ("ReferenceGrant", "main.org/open2", "UnknownService"),
    ("HTTPRouteNamedRouteRule", "main.org/named", "one named"),
    ("HTTPRoute", "main.org/r-host", "redirect 302 host=new.com"),
    ("HTTPRoutePortRedirect", "main.org/r-port", "redirect 302 port=8443"),
    ("HTTPRouteSchemeRedirect", "main.org/r-scheme", "redirect 302 scheme=https"),
    ("HTTPRoutePortRedirect", "main.org/r-both", "redirect 302 scheme=https host=new.com port=8443"),
    ("HTTPRouteSchemeRedirect", "main.org/r-own", "redirect 302 scheme=https"),
    ("HTTPRoutePathRedirect", "main.org/r-full/x", "redirect 302 path=/new"),
    ("HTTPRoutePathRedirect", "main.org/r-pre/x", "redirect 302 prefix=/new"),
    ("HTTPRoute", "main.org/r-301", "redirect 301 host=new.com"),
    ("HTTPRoute", "main.org/r-302", "redirect 302 host=new.com"),
    ("HTTPRoute303RedirectStatusCode", "main.org/r-303", "redirect 303 host=new.com"),
    ("HTTPRoute307RedirectStatusCode", "main.org/r-307", "redirect 307 host=new.com"),
    ("HTTPRoute308RedirectStatusCode", "main.org/r-308", "redirect 308 host=new.com"),
    ("HTTPRouteHostRewrite", "main.org/u-host", "web host=in.com"),
    ("HTTPRoutePathRewrite", "main.org/u-full/x", "web path=/new"),
    ("HTTPRoutePathRewrite", "main.org/u-pre", "web path=/new"),
    ("HTTPRoutePathRewrite", "main.org/u-pre/x", "web path=/new/x"),
    ("HTTPRoutePathRewrite", "main.org/u-cut/x", "web path=/x"),
    ("HTTPRoutePathRewrite", "main.org/u-cut", "web path=/"),
    ("HTTPRoutePathRewrite", "main.org/u-cut/", "web path=/"),
    ("HTTPRoutePathRewrite", "main.org/u-slash/x", "web path=/new/x"),
    ("HTTPRoute", "main.org/set", "web =x-a:one"),
    ("HTTPRoute", "main.org/add", "web +x-a:one +x-b:two"),
    ("HTTPRoute", "main.org/remove", "web -x-a"),
    ("HTTPRoute", "main.org/twice", "web =x-a:first"),
    ("HTTPRouteResponseHeaderModification", "main.org/answer", "web <=x-a:one <+x-b:two <-x-c"),
    ("HTTPRouteBackendRequestHeaderModification", "main.org/backend", "web =x-a:one"),
    ("HTTPRouteRequestMirror", "main.org/copy", "web copy=one*1"),
    ("HTTPRouteRequestMultipleMirrors", "main.org/copies", "web copy=one*1 copy=two*1"),
    ("HTTPRouteRequestPercentageMirror", "main.org/some", "web copy=one*0.2"),
    ("HTTPRouteRequestPercentageMirror", "main.org/part", "web copy=one*0.125"),
    ("HTTPRouteRequestMirror", "main.org/copy-ghost", "web"),
    ("HTTPRouteRequestTimeout", "main.org/t-request", "web timeout=2000ms"),
    ("HTTPRouteBackendTimeout", "main.org/t-backend", "web timeout=1000ms"),
    ("HTTPRouteBackendTimeout", "main.org/t-both", "web timeout=4000ms retries=3*1000ms"),
    ("HTTPRouteRequestTimeout", "main.org/t-none", "web"),
    ("HTTPRouteRetry", "main.org/retry", "web retries=4 on=500 on=503"),
    ("HTTPRouteRetry", "main.org/retry-default", "web retries=2 on=502"),
    ("HTTPRouteRetry", "main.org/retry-off", "web retries=0"),
    ("HTTPRoute", "plain.org/", "one"),
    ("HTTPRoute", "plain.org/any/path", "one"),
    ("HTTPRoute", "plain.org:80/", "one"),
    ("HTTPRoute", "PLAIN.org/", "one"),
    ("HTTPRoute", "ghost.org/", "404"),
    ("HTTPRoute", "b.wild.org/", "one"),
    ("HTTPRoute", "c.b.wild.org/", "one"),
    ("HTTPRoute", "a.wild.org/", "two"),
    ("HTTPRoute", "wild.org/", "404"),
    ("HTTPRoute", "both.org/same", "one"),
    ("HTTPRoute", "both.org/same/more", "two"),
    ("HTTPRoute", "both.org/other", "404"),
    ("HTTPRoute", "broken.org/", "404"),
    ("GatewayHTTPListenerIsolation", "a.x.com/", "one"),
    ("GatewayHTTPListenerIsolation", "a.x.com/section", "two"),
    ("GatewayHTTPListenerIsolation", "b.x.com/section", "one"),
    ("GatewayHTTPListenerIsolation", "c.org/section", "one"),
    ("GatewayHTTPListenerIsolation", "d.x.com/", "404"),
    ("HTTPRouteParentRefPort", "p.n.com/ 8080", "one"),
    ("HTTPRouteParentRefPort", "p.org/ 8080", "404"),
    ("HTTPRouteParentRefPort", "p.n.com/ 80", "404"),
    ("GatewayPort8080", "p.n.com/x 8080", "one"),
    ("Gateway", "s.n.com/ 8080", "404"),
    ("Gateway", "blue.org/ 8081", "one.blue"),
    ("Gateway", "red.org/ 8081", "404"),
    ("Gateway", "a.x.com/ 443 tls", "one"),
    ("Gateway", "c.org/ 443 tls", "no chain"),
    ("Gateway", "a.x.com/ 444 tls", "no listener"),
    ("Gateway", "a.x.com/ 9999", "no listener"),
    ("ListenerSet", "set.org/ 8082", "one"),
    ("ListenerSet", "set.org/ 80", "404"),
    ("ListenerSet", "plain.org/ 8082", "404"),
    ("GRPCRoute", "POST grpc.org/s.S/M", "one"),
    ("GRPCRoute", "POST grpc.org/s.S/N", "two"),
    ("GRPCRoute", "POST grpc.org/t.T/Only", "three"),
    ("GRPCRoute", "POST grpc.org/t.T/Other", "404"),
    ("GRPCRoute", "POST grpc.org/re.x/M", "one"),
    ("GRPCRoute", "POST grpc.org/h.H/M x-a=one", "three"),
    ("GRPCRoute", "POST grpc.org/h.H/M", "404"),
    ("GRPCRoute", "POST grpc.org/w.W/M", "1% one, 1% two"),
    ("GRPCRoute", "POST grpc.org/z.Z/M", "answers 500"),
    ("GRPCRoute", "POST both.org/s.S/M", "three"),
    ("TLSRoute", "a.db.com/ 8443 tls", "one"),
    ("TLSRoute", "b.db.com/ 8443 tls", "one"),
    ("TLSRoute", "b.com/ 8443 tls", "no chain"),
    ("TLSRouteModeTerminate", "end.com/ 8444 tls", "two"),
    ("TLSRouteModeTerminate", "other.com/ 8444 tls", "no chain"),
    ("TCPRoute", "x/ 5432", "3% one, 1% two"),
    ("TCPRoute", "x/ 5433", "outbound|65535|zero-weight|internal.cluster.local"),
]


def request(text: str) -> Request:
    """Parse the request of a row."""
    method, words = "GET", text.split()
    if words[0].isupper() and "/" not in words[0]:
        method = words.pop(0)
    host, slash, path = words.pop(0).partition("/")
    headers = dict(word.split("=") for word in words if "=" in word)
    port = next((int(word) for word in words if word.isdecimal()), 80)
    return Request(port, host, slash + path, sni=host if "tls" in words else None, method=method, headers=headers)
