"""Families of hostile JWT rules and Gateway servers, with all of their fields."""

from __future__ import annotations

import json
from typing import Any

from testing.hostile.objects import Plain, make_object, network, security
from testing.hostile.search import Choices, size

TEXTS = ("a", ".", "*", "/", "-", "é", "%", ":", "@", "\u0000", "{}", ",", " ", "\\", '"', "[", "1")
URLS = (
    "http://127.0.0.1:1/{}", "https://a{}.example.com/keys", "https://[::{}]/k", "http://u:p@a.example.com:{}/",
    "file:///{}", "https://a.example.com:99999/{}", "//a/{}", "http://[::1%25e{}]/", "https://xn--{}.example/",
    "http://169.254.169.254/{}", "https://é{}.example.com/", "http:{}", "https://0x7f.{}/",
)  # fmt: skip
DURATIONS = ("5s", "1h", "-1s", "9" * 400 + "s", "1e9s", "0.0000001s", "s", "1h1m1s" * 50)


def _some(c: Choices, name: str, largest: int) -> int:
    """Return 0, or in one case of four any number."""
    return c.count(name, largest) if c.pick(f"{name} used", (False, False, False, True)) else 0


def _listed(c: Choices, name: str, largest: int) -> list[str]:
    """Return texts that are equal, or distinct at their beginning or end."""
    count = _some(c, name, largest)
    text = c.text(f"{name} text", TEXTS, c.largest // max(1, count))
    form = c.pick(f"{name} form", ("{t}", "{t}{n}", "{n}{t}", "x{n}"))
    return [form.format(t=text, n=n) for n in range(count)]


def _repeated(c: Choices, name: str, largest: int, item: Any) -> int:
    """Return a number of items that have at most twice the largest size together, and at least 1."""
    return max(1, min(c.count(name, largest), 2 * c.largest // size(item)))


def _keys(c: Choices) -> str:
    """Return the text of a key set, which is usually wrong in some way."""
    member = c.text("member", ("w", "A", "_", "=", "é", "\\u0000", "1", " "), 900_000)
    kind = c.pick("key", ("RSA", "EC", "OKP", "oct", "deep", "many members", "x5c"))
    key: dict[str, Any] = {"kty": kind, "kid": c.pick("kid", ("a", "", 1, None)), "alg": "RS256"}
    match kind:
        case "RSA":
            key |= {"n": member, "e": c.pick("e", ("AQAB", "", 3, "A" * 5000))}
        case "EC" | "OKP":
            key |= {"crv": c.pick("crv", ("P-256", "Ed25519", "P-999")), "x": member, "y": member}
        case "oct":
            key |= {"k": member, "d": member}
        case "many members":
            key |= {f"m{n}": n for n in range(c.count("members", 50_000))}
        case "x5c":
            key = {**key, "kty": "RSA", "x5c": [member] * _some(c, "certificates", 5000)}
    text = json.dumps(key)
    if kind == "deep":
        opening, closing = c.pick("nesting", (("[", "]"), ('{"keys":[', "]}"), ('{"a":', "}")))
        depth = c.count("depth", 100_000)
        text = f'{{"kty":"RSA","a":{opening * depth}1{closing * depth}}}'
    keys = ",".join([text] * _repeated(c, "keys", 5000, text))
    forms = (f'{{"keys":[{keys}]}}', text, f"[{keys}]", keys, f'{{"keys":[{keys}', f'{{"keys":{{"a":{text}}}}}')
    repeated = '"keys":[],' * c.count("repeated", 20_000)
    return c.pick("key set", (*forms, f'{{{repeated}"keys":[{keys}]}}'))


def jwt_rules(c: Choices) -> Plain:
    """Return a RequestAuthentication whose rules have any fields."""
    issuer = c.pick("issuer", ("i{}", "https://i{}.example.com", "", "i", *URLS))
    long_issuer = c.text("issuer", TEXTS, 900_000)
    audiences, headers = _listed(c, "audiences", 20_000), _listed(c, "headers", 20_000)
    prefix = c.text("prefix", ("Bearer ", "é", "a", " ", "\n"), 100_000)
    claims = _listed(c, "claims", 20_000)
    rule: dict[str, Any] = {
        "audiences": audiences,
        "fromHeaders": [{"name": name, "prefix": prefix} for name in headers],
        "fromParams": _listed(c, "params", 20_000),
        "fromCookies": _listed(c, "cookies", 20_000),
        "outputClaimToHeaders": [{"header": f"x-{n}", "claim": claim} for n, claim in enumerate(claims)],
        "outputPayloadToHeader": c.pick("payload", ("", "x-payload", "é", "a" * 5000)),
        "spaceDelimitedClaims": _listed(c, "delimited", 20_000),
        "timeout": c.pick("timeout", DURATIONS),
        "forwardOriginalToken": c.pick("forward", (True, False)),
    }
    rule = {name: value for name, value in rule.items() if value}
    url, source = c.pick("url", URLS), c.pick("source", ("jwks", "jwksUri", "both", "neither"))
    path = c.text("path", ("/", "a", "%2e", "?", "#", "é", "../", ";"), 900_000)
    keys = _keys(c) if source in ("jwks", "both") else ""
    rules = []
    for n in range(_repeated(c, "rules", 1000, [rule, keys, path, long_issuer])):
        one = {**rule, "issuer": issuer.format(n) + long_issuer}
        if keys:
            one["jwks"] = keys
        if source in ("jwksUri", "both"):
            one["jwksUri"] = url.format(n) + path
        rules.append(one)
    selected = c.pick("attachment", ("nothing", "labels", "targets"))
    spec: Plain = {"jwtRules": rules}
    if selected == "labels":
        spec["selector"] = {"matchLabels": {f"l{n}": "v" for n in range(max(1, _some(c, "labels", 20_000)))}}
    elif selected == "targets":
        target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "worst"}
        spec["targetRefs"] = [{**target, "name": f"t{n}"} for n in range(max(1, c.count("targets", 20_000)))]
    return security("RequestAuthentication", spec)


CIPHERS = ("ECDHE-RSA-AES128-GCM-SHA256", "AES256-SHA", "TLS_AES_128_GCM_SHA256", "NONE", "", "é", "a:b")
HOSTS = (
    "h{}.example.com", "*.h{}.example.com", "*", "./h{}.example.com", "*/h{}.example.com", "n{}/h.example.com",
    "n{}/*", "h{}", "é{}.example.com", "{}." + "a." * 60 + "b", "*.{}", "hostile/*.com",
)  # fmt: skip


def _servers(c: Choices) -> list[Plain]:
    names = [c.pick("host", HOSTS).format(n) for n in range(max(1, c.count("hosts", 20_000)))]
    own = c.pick("own hosts", (False, True))
    tls: dict[str, Any] = {
        "mode": c.pick(
            "mode", ("SIMPLE", "MUTUAL", "PASSTHROUGH", "AUTO_PASSTHROUGH", "ISTIO_MUTUAL", "OPTIONAL_MUTUAL", "OTHER")
        ),
        "cipherSuites": [c.pick("cipher", CIPHERS)] * _some(c, "ciphers", 20_000),
        "ecdhCurves": _listed(c, "curves", 20_000),
        "subjectAltNames": _listed(c, "names", 20_000),
        "verifyCertificateSpki": _listed(c, "spki", 20_000),
        "verifyCertificateHash": [c.pick("hash", ("ab" * 32, "AB:" * 31 + "AB", "x")) for _ in range(_some(c, "hashes", 20_000))],
        "credentialName": c.text("credential", ("worst", "a", "/", "-cacert", "kubernetes://", "é", "."), 100_000),
        "credentialNames": _listed(c, "credentials", 20_000),
        "caCertCredentialName": c.pick("CA", ("", "worst", "a" * 5000)),
        "serverCertificate": c.pick("certificate", ("", "/etc/a", "a" * 5000)),
        "tlsCertificates": [{"serverCertificate": "/a", "privateKey": "/b"}] * _some(c, "certificates", 5000),
        "minProtocolVersion": c.pick("minimum", ("TLS_AUTO", "TLSV1_3", "X")),
        "maxProtocolVersion": c.pick("maximum", ("TLS_AUTO", "TLSV1_0", "TLSV1_3")),
        "httpsRedirect": c.pick("redirect", (False, True)),
    }  # fmt: skip
    tls = {name: value for name, value in tls.items() if value}
    protocol = c.pick("protocol", ("HTTP", "HTTPS", "TLS", "TCP", "GRPC", "MONGO", "x" * 5000, "HTTP2"))
    number = c.pick("port", ("same", "each", "zero", "huge"))
    bind = c.pick("bind", ("", "0.0.0.0", "10.0.0.{}", "unix:///a{}", "::{}", "x"))
    servers = []
    for n in range(_repeated(c, "servers", 10_000, [names, tls])):
        port = {"same": 443, "each": n % 60_000 + 1, "zero": 0, "huge": 1 << 40}[number]
        server: Plain = {
            "name": c.pick("server", ("", "s", "a" * 300)),
            "port": {"number": port, "name": f"p{n}", "protocol": protocol},
            "hosts": [f"{n}.{host}" if own else host for host in names],
        }
        if bind:
            server["bind"] = bind.format(n % 250)
        if c.pick("TLS", (True, True, False)):
            server["tls"] = tls
        servers.append(server)
    return servers


def gateway_server_fields(c: Choices) -> Plain:
    """Return a Gateway whose servers have any fields, and a VirtualService for it."""
    gateway = network("Gateway", {"selector": {"istio": "ingress"}, "servers": _servers(c)})
    destination = {"destination": {"host": "a.example.com"}}
    tls = [{"match": [{"port": 443, "sniHosts": ["*.example.com"]}], "route": [destination]}]
    hosts = c.pick("routed", ((), ("*",), ("*.example.com",), ("h1.example.com", "*.com")))
    routes = network(
        "VirtualService", {"hosts": hosts, "gateways": ["worst"], "http": [{"route": [destination]}], "tls": tls}
    )
    return {"apiVersion": "v1", "kind": "List", "items": [gateway, *([routes] if hosts else [])]}


def _references(c: Choices, name: str) -> list[Plain]:
    kind = c.pick(f"{name} kind", ("Secret", "ConfigMap", "Other"))
    plain = {"kind": kind, "group": c.pick(f"{name} group", ("", "a")), "name": "worst"}
    if namespace := c.pick(f"{name} namespace", ("", "other", "hostile")):
        plain["namespace"] = namespace
    distinct = c.pick(f"{name} distinct", (False, True))
    return [{**plain, "name": f"c{n}"} if distinct else plain for n in range(_some(c, name, 10_000))]


def gateway_listeners(c: Choices) -> Plain:
    """Return a Gateway of the Gateway API, a ListenerSet and a route, which have any fields."""
    api = "gateway.networking.k8s.io/v1"
    expressions = [
        {"key": f"k{n}", "operator": c.pick("operator", ("In", "NotIn", "Exists", "Bad")), "values": ["a"]}
        for n in range(_some(c, "expressions", 5000))
    ]
    source = c.pick("from", ("All", "Same", "Selector", "None", "X"))
    kinds = [{"kind": c.pick("kind", ("HTTPRoute", "TCPRoute", "TLSRoute", "X"))}] * _some(c, "kinds", 5000)
    options = {
        f"o{n}": c.pick("option", ("a", "TLS_AES_128_GCM_SHA256,a,b" * 50)) for n in range(_some(c, "options", 5000))
    }
    option = c.pick("known option", ("", "gateway.istio.io/tls-terminate-mode", "gateway.istio.io/tls-cipher-suites"))
    if option:
        options[option] = c.pick("mode", ("MUTUAL", "ISTIO_SIMPLE", "AES128-SHA," * 3000, "é"))
    certificates = _references(c, "certificates")
    tls = {
        "mode": c.pick("TLS mode", ("Terminate", "Passthrough", "X")),
        "certificateRefs": certificates,
        "options": options,
    }
    host = c.pick("host", ("h{}.example.com", "*.h{}.example.com", "", "*", "same.example.com", "é{}", "10.0.0.{}"))
    port = c.pick("port", ("same", "each", "zero"))
    protocol = c.pick("protocol", ("HTTP", "HTTPS", "TLS", "TCP", "HBONE", "UDP", "example.com/x"))

    def listeners(count: int, prefix: str) -> list[Plain]:
        result = []
        for n in range(count):
            plain: Plain = {
                "name": f"{prefix}{n}" if c.pick("names", (True, True, False)) else prefix,
                "port": {"same": 443, "each": n % 60_000 + 1, "zero": 0}[port],
                "protocol": protocol,
                "allowedRoutes": {
                    "kinds": kinds, "namespaces": {"from": source, "selector": {"matchExpressions": expressions}},
                },
            }  # fmt: skip
            if host:
                plain["hostname"] = host.format(n)
            if c.pick("TLS", (True, False)):
                plain["tls"] = tls
            result.append(plain)
        return result

    addresses = [
        {"type": c.pick("address", ("IPAddress", "Hostname", "X")), "value": f"10.0.{n >> 8 & 255}.{n & 255}"}
        for n in range(_some(c, "addresses", 5000))
    ]
    validation = {"default": {"validation": {"caCertificateRefs": _references(c, "CAs")}}}
    per_port = [{"port": n, "tls": validation["default"]} for n in range(_some(c, "frontend ports", 5000))]
    gateway = make_object(
        api,
        "Gateway",
        {
            "gatewayClassName": c.pick("class", ("istio", "istio-waypoint", "istio-remote", "x")),
            "listeners": listeners(_repeated(c, "listeners", 5000, [tls, kinds, expressions]), "l"),
            "addresses": addresses,
            "allowedListeners": {"namespaces": {"from": "Same"}},
            "tls": {"frontend": {**validation, "perPort": per_port}},
            "infrastructure": {"labels": {f"l{n}": "v" for n in range(_some(c, "labels", 5000))}},
        },
    )
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "worst"}
    more = make_object(
        api,
        "ListenerSet",
        {
            "parentRef": parent,
            "listeners": listeners(
                0
                if not c.pick("more used", (False, False, True))
                else _repeated(c, "more", 5000, [tls, kinds, expressions]),
                "m",
            ),
        },
    )
    sections = [{**parent, "sectionName": f"l{n}"} for n in range(_some(c, "sections", 2000))] or [parent]
    names = [f"h{n}.example.com" for n in range(_some(c, "route hosts", 2000))]
    rules = [{"backendRefs": [{"name": "s", "port": 80}]}] * max(1, c.count("rules", 2000))
    kind = c.pick("route", ("HTTPRoute", "TLSRoute", "none"))
    route = make_object(api, kind, {"parentRefs": sections, "hostnames": names, "rules": rules})
    items = [gateway, *([more] if more["spec"]["listeners"] else []), *([route] if kind != "none" else [])]
    return {"apiVersion": "v1", "kind": "List", "items": items}
