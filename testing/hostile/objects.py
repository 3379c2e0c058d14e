"""Families of hostile configuration objects and Pods, each made from a few choices of a search."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from testing.hostile.search import Choices

Plain = dict[str, Any]
NAMESPACE = "hostile"
PATTERNS = (r"(?i)[\pL]{300}", r"(a{1,30}){1,30}", "(x|y){900}", r"(\pL|\d)*", ".*a", "((", "[^a]{500}", "(a?){900}")
FORMATS = ("%A(", "%REQ(X)%", "%%", "%START_TIME(%", ")", "a", "%REQ(a?b):9%", "%DYNAMIC_METADATA([", '"', ",")
NAMES = ("a", "*.", "-", ".", "é", "a.b", "*", "~/", "%", "\u0000")


def make_object(api: str, kind: str, spec: Any, name: str = "worst", **more: Any) -> Plain:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": spec,
        **more,
    }


def network(kind: str, spec: Any) -> Plain:
    return make_object("networking.istio.io/v1", kind, spec)


def security(kind: str, spec: Any) -> Plain:
    return make_object("security.istio.io/v1", kind, spec)


def hosts(c: Choices, name: str, largest: int) -> list[str]:
    suffix = c.pick(
        f"{name} suffix",
        ("example.com", "example.com", "example.com", "hostile.svc.cluster.local", "a." * 60 + "b", "é"),
    )
    prefix = c.pick(f"{name} prefix", ("h{}.", "h{}.", "h{}.", "*.h{}.", "h{}", "./h{}."))
    return [prefix.format(n) + suffix for n in range(c.count(name, largest))]


def header_formats(c: Choices) -> Plain:
    text = c.text("value", FORMATS, 200_000)
    headers = {f"x-{n}": text for n in range(max(1, c.count("headers", 2000)))}
    operations = {c.pick("operation", ("set", "add")): headers, "remove": list(headers)}
    route = {"headers": {"request": operations}, "route": [{"destination": {"host": "a.example.com"}}]}
    return network("VirtualService", {"hosts": ["a.example.com"], "http": [route]})


def regular_expressions(c: Choices) -> Plain:
    pattern = c.pick("pattern", PATTERNS) * max(1, c.count("repeats", 100)) + c.pick("end", ("", ")", "$", "{2}"))
    field = c.pick("field", ("uri", "authority", "headers", "queryParams"))

    def match(n: int) -> Plain:
        value = {"regex": pattern + str(n)}
        return {field: value if field in ("uri", "authority") else {"x-a": value}}

    matches = [match(n) for n in range(max(1, c.count("matches", 20_000)))]
    return network(
        "VirtualService",
        {
            "hosts": ["a.example.com"],
            "http": [{"match": matches, "route": [{"destination": {"host": "a.example.com"}}]}],
        },
    )


def virtual_service_lists(c: Choices) -> Plain:
    matches = [
        {c.pick("match", ("uri", "authority")): {c.pick("kind", ("prefix", "exact")): f"/{n}"}}
        for n in range(c.count("matches", 20_000))
    ]
    destinations = [
        {"destination": {"host": f"h{n}.example.com"}, "weight": 1}
        for n in range(max(1, c.count("destinations", 5000)))
    ]
    routes = [
        {"name": f"r{n}", "match": matches, "route": destinations} for n in range(max(1, c.count("routes", 20_000)))
    ]
    return network(
        "VirtualService",
        {
            "hosts": hosts(c, "hosts", 20_000),
            "gateways": ["mesh", *(f"g{n}" for n in range(c.count("gateways", 2000)))],
            "http": routes,
        },
    )


def destination_rules(c: Choices) -> Plain:
    ports = [
        {"port": {"number": n + 1}, "connectionPool": {"tcp": {"maxConnections": 1}}}
        for n in range(c.count("ports", 5000))
    ]
    policy = {"portLevelSettings": ports}
    labels = {f"l{n}": "v" for n in range(c.count("labels", 100))}
    subsets = [
        {
            "name": f"s{n}",
            "labels": labels,
            **({"trafficPolicy": policy} if c.pick("policy", (False, True)) else {}),
        }
        for n in range(c.count("subsets", 20_000))
    ]
    return network("DestinationRule", {"host": "*.example.com", "trafficPolicy": policy, "subsets": subsets})


def service_entries(c: Choices) -> Plain:
    endpoints = [
        {"address": f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}", "labels": {"a": str(n)}}
        for n in range(c.count("endpoints", 20_000))
    ]
    ports = [
        {"number": n + 1, "name": f"p{n}", "protocol": c.pick("protocol", ("HTTP", "TCP", "TLS"))}
        for n in range(max(1, c.count("ports", 5000)))
    ]
    addresses = [
        f"10.{n >> 8 & 255}.{n & 255}.0/{c.pick('bits', (32, 24, 8))}" for n in range(c.count("addresses", 5000))
    ]
    return network(
        "ServiceEntry",
        {
            "hosts": hosts(c, "hosts", 20_000),
            "ports": ports,
            "addresses": addresses,
            "endpoints": endpoints,
            "resolution": c.pick("resolution", ("STATIC", "DNS", "NONE", "DNS_ROUND_ROBIN")),
        },
    )


MAX_HOSTS = 100_000
"""Maximum number of hosts in several ServiceEntries, and of ports of several Services. The largest input has room for
fewer."""


def several_service_entries(c: Choices) -> Plain:
    entry = service_entries(c)
    items = []
    most = MAX_HOSTS // max(1, len(entry["spec"]["hosts"]))
    for n in range(max(1, min(c.count("entries", 5000), most))):
        names = [host.replace("h", f"e{n}h", 1) for host in entry["spec"]["hosts"]]
        items.append(
            {
                **entry,
                "metadata": {**entry["metadata"], "name": f"worst-{n}"},
                "spec": {**entry["spec"], "hosts": names},
            }
        )
    return {"apiVersion": "v1", "kind": "List", "items": items}


def authorization_policies(c: Choices) -> Plain:
    field = c.pick("field", ("principals", "namespaces", "ipBlocks", "notPrincipals", "requestPrincipals"))
    value = c.pick("value", ("a{}", "*a{}", "a{}*", "10.0.0.{}/8", "spiffe://a/{}", "::{}"))
    source = {field: [value.format(n) for n in range(max(1, c.count("values", 2000)))]}
    sources = [{"source": source}] * c.count("from", 5000)
    operations = [
        {"operation": {c.pick("operation", ("paths", "hosts", "ports", "methods")): [f"/{n}/{{*}}"]}}
        for n in range(c.count("to", 5000))
    ]
    key = c.pick("key", ("request.headers[{}]", "destination.ip", "experimental.envoy.filters.a[{}]", "connection.sni"))
    when = [{"key": key.format(n), "values": ["10.0.0.1"]} for n in range(c.count("when", 5000))]
    rules = [{"from": sources, "to": operations, "when": when}] * max(1, c.count("rules", 2000))
    return security("AuthorizationPolicy", {"action": c.pick("action", ("ALLOW", "DENY")), "rules": rules})


def envoy_filters(c: Choices) -> Plain:
    value: Any = {
        f"{c.pick('field', ('unknown', 'name', 'typed_config', '@type'))}{n}": n
        for n in range(c.count("fields", 20_000))
    }
    for _ in range(c.count("depth", 90)):
        wrap = c.pick("wrap", ("struct", "list", "chain", "typed"))
        if wrap == "struct":
            value = {"metadata": {"filter_metadata": {"a": value}}}
        elif wrap == "list":
            value = [value]
        elif wrap == "chain":
            value = {"filter_chains": [value]}
        else:
            value = {"typed_config": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": value}}}
    target = c.pick("target", ("CLUSTER", "LISTENER", "HTTP_FILTER", "ROUTE_CONFIGURATION", "HTTP_ROUTE", "BOOTSTRAP"))
    operation = c.pick("operation", ("MERGE", "ADD", "INSERT_FIRST", "REPLACE", "REMOVE"))
    patch = {"applyTo": target, "match": {"context": "ANY"}, "patch": {"operation": operation, "value": value}}
    return make_object(
        "networking.istio.io/v1alpha3",
        "EnvoyFilter",
        {"configPatches": [patch] * max(1, c.count("patches", 5000))},
    )


def gateways(c: Choices) -> Plain:
    names = hosts(c, "hosts", 5000)
    servers = [
        {
            "port": {
                "number": n % 60_000 + 1,
                "name": f"p{n}",
                "protocol": c.pick("protocol", ("HTTP", "HTTPS", "TLS")),
            },
            "hosts": names,
            "tls": {"mode": "SIMPLE", "credentialName": c.pick("credential", ("worst", "other"))},
        }
        for n in range(max(1, c.count("servers", 10_000)))
    ]
    return network("Gateway", {"selector": {"istio": "ingress"}, "servers": servers})


def sidecars(c: Choices) -> Plain:
    names = hosts(c, "hosts", 5000)
    egress = [
        {"port": {"number": n + 1, "protocol": "HTTP", "name": f"p{n}"}, "hosts": names}
        for n in range(max(1, c.count("listeners", 10_000)))
    ]
    ingress = [
        {"port": {"number": n + 1, "protocol": "HTTP", "name": f"p{n}"}, "defaultEndpoint": "127.0.0.1:80"}
        for n in range(c.count("ingress", 10_000))
    ]
    return network("Sidecar", {"egress": egress, "ingress": ingress})


def peer_authentications(c: Choices) -> Plain:
    ports = {str(n): {"mode": c.pick("mode", ("STRICT", "DISABLE", "OTHER"))} for n in range(c.count("ports", 60_000))}
    labels = {f"l{n}": "v" for n in range(max(1, c.count("labels", 20_000)))}
    return security("PeerAuthentication", {"selector": {"matchLabels": labels}, "portLevelMtls": ports})


def telemetries(c: Choices) -> Plain:
    pieces = ("(", "!", "1+", '"a"', "'é'", "[", "a.", "? 1 :", "9", "-", "&& a", "{", 'b"é"', "response.code == 1 ||")
    text = c.text("expression", pieces, 200_000)
    entry = {"filter": {"expression": text}}
    tags = {f"t{n}": {"value": text} for n in range(c.count("tags", 2000))}
    overrides = [{"tagOverrides": tags}] * c.count("overrides", 5000)
    return make_object(
        "telemetry.istio.io/v1",
        "Telemetry",
        {
            "accessLogging": [entry] * max(1, c.count("entries", 5000)),
            "metrics": [{"providers": [{"name": "prometheus"}], "overrides": overrides}],
        },
    )


def http_routes(c: Choices) -> Plain:
    matches = [
        {"path": {"type": "RegularExpression", "value": f"{c.pick('pattern', PATTERNS)}{n}"}}
        for n in range(c.count("matches", 5000))
    ]
    backends = [{"name": "s", "port": 80}] * c.count("backends", 2000)
    rules = [{"matches": matches, "backendRefs": backends}] * c.count("rules", 5000)
    parents = [{"name": f"g{n}"} for n in range(c.count("parents", 5000))]
    return make_object(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        {"parentRefs": parents, "hostnames": hosts(c, "hosts", 10_000), "rules": rules},
    )


def services(c: Choices) -> Plain:
    ports = [{"name": f"p{n}", "port": n + 1, "protocol": "TCP"} for n in range(max(1, c.count("ports", 20_000)))]
    names = ",".join(str(n) for n in range(c.count("exports", 20_000)))
    plain = make_object(
        "v1", "Service", {"clusterIP": "10.99.0.1", "ports": ports, "externalIPs": ["1.1.1.1"] * c.count("ips", 20_000)}
    )
    plain["metadata"]["annotations"] = {"networking.istio.io/exportTo": names}
    return plain


def several_services(c: Choices) -> Plain:
    prefix = c.pick("protocol", ("http", "grpc", "tcp", "tls", "mysql", "x", ""))
    ports = [
        {"name": f"{prefix}-{n}", "port": n + 1} if prefix else {"port": n + 1}
        for n in range(max(1, c.count("ports", 2000)))
    ]
    address = c.pick("address", ("10.{}.{}.1", "None", "fd00::{}:{}", ""))
    spec = {"ports": ports, **c.pick("selector", ({}, {"selector": {"app": "a"}}))}
    is_dated = c.pick("created", (True, False))
    items = []
    for n in range(max(1, min(c.count("services", 10_000), MAX_HOSTS // len(ports)))):
        plain = make_object("v1", "Service", {"clusterIP": address.format(n >> 8, n & 255), **spec}, f"s{n}")
        if not address:
            del plain["spec"]["clusterIP"]
        if not is_dated:
            del plain["metadata"]["creationTimestamp"]
        items.append(plain)
    return {"apiVersion": "v1", "kind": "List", "items": items}


def secrets(c: Choices) -> Plain:
    pieces = (
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
        "MIIB\n",
        "-----BEGIN ",
        "-----",
        "A" * 64 + "\n",
        "\n",
    )
    exponents = (11213, 19937, 21701, 23209)
    material = c.text("material", pieces, 700_000)
    if c.pick("key", ("text", "primes")) == "primes":
        material = _rsa_key((1 << c.pick("p", exponents)) - 1, (1 << c.pick("q", exponents[:2])) - 1)
    names = c.pick(
        "keys", (("tls.crt", "tls.key"), ("tls.crt", "tls.key", "ca.crt", "ca.crl"), ("cert", "key", "cacert"))
    )
    data = {name: base64.b64encode(material.encode()).decode() for name in names}
    plain = make_object("v1", "Secret", None, data=data, type="kubernetes.io/tls")
    del plain["spec"]
    return plain


def _rsa_key(p: int, q: int) -> str:
    """Return an RSA key in PEM with these prime factors."""

    def tagged(tag: int, content: bytes) -> bytes:
        length = len(content).to_bytes(3, "big")
        return bytes((tag, 0x83)) + length + content

    def integer(number: int) -> bytes:
        return tagged(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))

    numbers = (0, p * q, 65537, 65537, p, q, 65537, 65537, 65537)
    text = base64.encodebytes(tagged(0x30, b"".join(map(integer, numbers)))).decode()
    label = "RSA PRIVATE KEY"
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"


CONFIGURATION: dict[str, Callable[[Choices], Plain]] = {
    "header formats": header_formats,
    "regular expressions": regular_expressions,
    "VirtualService lists": virtual_service_lists,
    "DestinationRule subsets": destination_rules,
    "ServiceEntry products": service_entries,
    "several ServiceEntries": several_service_entries,
    "AuthorizationPolicy products": authorization_policies,
    "EnvoyFilter values": envoy_filters,
    "Gateway servers": gateways,
    "Sidecar listeners": sidecars,
    "PeerAuthentication ports": peer_authentications,
    "Telemetry expressions": telemetries,
    "HTTPRoute products": http_routes,
    "Service ports": services,
    "several Services": several_services,
    "key material": secrets,
}
"""Builders of configuration objects by family."""


def yaml_text(c: Choices) -> str:
    """Return YAML with aliases, directives and deep nesting."""
    text = c.pick("unit", ("a", "'", "\\", "é", " b")) * c.count("bytes", 200_000)
    lines = [f"a0: &a0 {json.dumps(text)}"]
    for level in range(c.count("levels", 40)):
        references = ", ".join([f"*a{level}"] * max(1, c.count("references", 5000)))
        lines.append(f"a{level + 1}: &a{level + 1} [{references}]")
    opening = c.pick("opening", ("[", "{a: ", "- ", "? ", "&a ", "!!x "))
    directives = "%TAG !a! b\n" * c.count("directives", 5000)
    lines += [
        f"k{c.pick('key', ('', 'k', '~', '!!float 1'))}{n}: {c.pick('item', ('1', '1_0', '1:2', 'y', '[]'))}"
        for n in range(c.count("keys", 50_000))
    ]
    return "\n".join((f"{directives}---" if directives else "", *lines, "deep: " + opening * c.count("depth", 100_000)))


def pods(c: Choices) -> Plain:
    annotation = c.pick(
        "annotation",
        (
            "proxy.istio.io/config",
            "sidecar.istio.io/proxyCPU",
            "sidecar.istio.io/proxyMemoryLimit",
            "inject.istio.io/templates",
            "proxy.istio.io/overrides",
            "traffic.sidecar.istio.io/includeOutboundIPRanges",
            "traffic.sidecar.istio.io/excludeInboundPorts",
            "sidecar.istio.io/userVolume",
            "readiness.status.sidecar.istio.io/applicationPorts",
            "prometheus.io/port",
            "sidecar.istio.io/extraStatTags",
        ),
    )
    match c.pick("value", ("yaml", "text", "number", "json")):
        case "yaml":
            value = yaml_text(c)
        case "text":
            value = c.text(
                "text", ("1", "e9", "sidecar,", "1,", "10.0.0.0/8,", "[", "{a: b}, ", '{"a":', "-", "A: b\n"), 500_000
            )
        case "number":
            value = "1e" + "9" * c.count("exponent", 2000)
        case _:
            item = {"name": "a", "$patch": "delete", "image": "x", "mountPath": "/a"}
            value = json.dumps({"containers": [item] * c.count("items", 20_000)})
    env = [
        {"name": f"A{n}", "value": c.pick("env", ("a", "$(A1)", "{{.}}"))} for n in range(c.count("variables", 20_000))
    ]
    quantity = c.pick("quantity", ("1", "1e999999999", "9" * 5000, "1E+9999", "-1n"))
    container = {
        "name": "app",
        "image": "a",
        "env": env,
        "resources": {"limits": {"cpu": quantity}},
        "ports": [{"containerPort": n % 65_000 + 1} for n in range(c.count("ports", 10_000))],
        "readinessProbe": {"httpGet": {"port": 80, "path": "/"}},
    }
    containers = [{**container, "name": f"app-{n}"} for n in range(max(1, c.count("containers", 5000)))]
    metadata = {"name": "worst", "namespace": NAMESPACE, "annotations": {annotation: value}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def gateway_with_overlay(overlay: str) -> str:
    """Return a Gateway of the Gateway API, and the ConfigMap that its objects are overlaid with."""
    reference = {"group": "", "kind": "ConfigMap", "name": "worst"}
    spec = {
        "gatewayClassName": "istio",
        "infrastructure": {"parametersRef": reference},
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
    }
    documents = (
        make_object("gateway.networking.k8s.io/v1", "Gateway", spec),
        make_object("v1", "ConfigMap", None, data={"deployment": overlay}),
    )
    return "\n---\n".join(map(json.dumps, documents))
