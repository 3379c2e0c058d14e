"""No object refers into another namespace without a ReferenceGrant of that namespace, whatever its kind; with one it does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from pilot.config.group_kind import GATEWAY_API
from pilot.config.kinds.istio import GATEWAY, VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import HTTPRoute
from testing.edits.gateway_objects import gateway_object
from testing.mesh.objects import Plain, make
from testing.mesh.world import World, proxy, rows_of
from testing.security.credentials import Authority, config_map, tls_secret

NAMESPACES = ("a", "b", "c")
ISSUED = Authority().issue("x.example.com")
ROUTES = ("HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute")
PROTOCOLS = {"HTTPRoute": "HTTP", "GRPCRoute": "HTTP", "TCPRoute": "TCP", "TLSRoute": "TLS"}
FIXED: tuple[Plain, ...] = (
    *(
        make("Service", name, "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}", ns)
        for ns in NAMESPACES
        for name in ("one", "two")
    ),
    *(
        make("Service", "front", "{clusterIP: 10.96.0.9, selector: {app: front}, ports: [{name: tls, port: 443}]}", ns)
        for ns in NAMESPACES
    ),
    *(tls_secret(name, ISSUED, ns) for ns in NAMESPACES for name in ("one", "two")),
    *(config_map(name, {"ca.crt": Authority().pem.decode()}, ns) for ns in NAMESPACES for name in ("one", "two")),
)


class Reference(NamedTuple):
    """Who refers to what."""

    kind: str
    namespace: str
    to: str
    place: str
    name: str


class Drawn(NamedTuple):
    """A mesh of random references and grants."""

    objects: tuple[Plain, ...]
    grants: tuple[dict[str, Any], ...]

    def allows(self, asked: Reference) -> bool:
        """The specification's words, read once more: same namespace, or one grant there with a matching `from` and a matching `to`."""
        if asked.namespace == asked.place:
            return True
        for grant in self.grants:
            by = {"group": GATEWAY_API, "kind": asked.kind, "namespace": asked.namespace} in grant["spec"]["from"]
            listed = [
                to
                for to in grant["spec"]["to"]
                if (to["group"], to["kind"]) == ("", asked.to) and to.get("name", asked.name) == asked.name
            ]
            if grant["metadata"]["namespace"] == asked.place and by and listed:
                return True
        return False


def draw(choose: random.Random) -> Drawn:
    objects: list[Plain] = []
    for n, ns in enumerate(NAMESPACES):
        listeners = "{name: web, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, " + ", ".join(
            f"{{name: {kind.lower()}, port: {90 + i}, protocol: {PROTOCOLS[kind]}, allowedRoutes: {{namespaces: {{from: All}}}}"
            + (", tls: {mode: Passthrough}}" if PROTOCOLS[kind] == "TLS" else "}")
            for i, kind in enumerate(ROUTES)
        )
        roots = f"{{group: '', kind: {choose.choice(('Secret', 'ConfigMap'))}, name: one, namespace: {choose.choice(NAMESPACES)}}}"
        safe = f"{{name: safe, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{secret(choose)}, {secret(choose)}]}}}}"
        asks = choose.random() < 0.5
        frontend = f", tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{roots}]}}}}}}}}" if asks else ""
        head = "gatewayClassName: istio, addresses: [{type: Hostname, value: front}], allowedListeners: {namespaces: {from: All}}"
        objects.append(gateway_object("Gateway", "gw", f"{head}, listeners: [{listeners}, {safe}]{frontend}", ns))
        extra = f"{{name: safe, port: 44{n}, protocol: HTTPS, tls: {{certificateRefs: [{secret(choose)}]}}}}"
        of = f"parentRef: {{name: gw, namespace: {choose.choice(NAMESPACES)}}}"
        objects.append(gateway_object("ListenerSet", "ls", f"{of}, listeners: [{extra}]", ns))
        for kind in ROUTES:
            copied = f", filters: [{{type: RequestMirror, requestMirror: {{backendRef: {backend(choose)}}}}}]"
            mirror = copied if kind in ("HTTPRoute", "GRPCRoute") else ""
            parent = f"{{name: gw, namespace: {choose.choice(NAMESPACES)}, sectionName: {kind.lower()}}}"
            rule = f"{{backendRefs: [{backend(choose)}, {backend(choose)}]{mirror}}}"
            objects.append(gateway_object(kind, kind.lower(), f"parentRefs: [{parent}], rules: [{rule}]", ns))
    grants = tuple(grant(choose, n) for n in range(choose.randrange(1, 14)))
    return Drawn((*objects, *grants), grants)


def secret(choose: random.Random) -> str:
    return f"{{name: {choose.choice(('one', 'two'))}, namespace: {choose.choice(NAMESPACES)}}}"


def backend(choose: random.Random) -> str:
    return f"{{name: {choose.choice(('one', 'two'))}, namespace: {choose.choice(NAMESPACES)}, port: 80}}"


def grant(choose: random.Random, n: int) -> Plain:
    """A grant, some of which are for what nobody asks."""
    by = [
        (
            choose.choice((GATEWAY_API, "other.io")),
            choose.choice((*ROUTES, "Gateway", "ListenerSet")),
            choose.choice(NAMESPACES),
        )
        for _ in range(2)
    ]
    to = [
        (
            choose.choice(("", "apps")),
            choose.choice(("Service", "Secret", "ConfigMap")),
            choose.choice(("one", "two", "")),
        )
        for _ in range(2)
    ]
    froms = ", ".join(f"{{group: '{g}', kind: {k}, namespace: {ns}}}" for g, k, ns in by)
    tos = ", ".join(f"{{group: '{g}', kind: {k}{', name: ' + name if name else ''}}}" for g, k, name in to)
    return gateway_object(
        "ReferenceGrant",
        f"g{n}",
        f"from: [{froms}], to: [{tos}]",
        choose.choice(NAMESPACES),
        api=f"{GATEWAY_API}/v1beta1",
    )


def leads(world: World) -> Iterator[Reference]:
    """All that the rules of derived VirtualServices lead to, by the kind of route they are of."""
    for key in VIRTUAL_SERVICE.all_keys(world.mesh):
        row = VIRTUAL_SERVICE.get(world.mesh, key)
        assert row is not None
        assert row.origin is not None
        parents = {f"{p.namespace}.{p.name}": p for p in row.origin.parents}
        rules: list[Any] = [*row.spec.http, *row.spec.tcp, *row.spec.tls]
        for rule in rules:
            named = rule.name.rpartition(".")[0] if isinstance(rule, HTTPRoute) else ""
            parent = parents[named] if named else row.origin.parents[0]
            destinations: list[Any] = [*rule.route, *(rule.mirrors if isinstance(rule, HTTPRoute) else ())]
            for to in destinations:
                if to.destination is not None and to.destination.host.endswith(".svc.cluster.local"):
                    name, place, *_ = to.destination.host.split(".")
                    yield Reference(parent.kind.name, parent.namespace, "Service", place, name)


def credentials(world: World) -> Iterator[Reference]:
    """All credentials that derived Gateways name."""
    for key in GATEWAY.all_keys(world.mesh):
        row = GATEWAY.get(world.mesh, key)
        assert row is not None
        assert row.origin is not None
        (owner,), tls = row.origin.parents, row.spec.servers[0].tls
        for text in (
            (*tls.credential_names, tls.credential_name, tls.ca_cert_credential_name) if tls is not None else ()
        ):
            if text:
                scheme, _, rest = text.partition("://")
                place, _, name = rest.partition("/")
                kind = "ConfigMap" if scheme == "configmap" else "Secret"
                yield Reference(owner.kind.name, owner.namespace, kind, place, name.removesuffix("-cacert"))


def asked(drawn: Drawn) -> Iterator[Reference]:
    """All backends that routes name, as they were written."""
    for one in drawn.objects:
        for rule in one["spec"].get("rules", ()):
            refs = [*rule["backendRefs"], *(f["requestMirror"]["backendRef"] for f in rule.get("filters", ()))]
            yield from (
                Reference(one["kind"], one["metadata"]["namespace"], "Service", ref["namespace"], ref["name"])
                for ref in refs
            )


@pytest.mark.parametrize("part", range(25))
def test_only_what_is_granted_is_reached(seed: int, part: int) -> None:
    drawn = draw(random.Random(f"grants {seed} {part}"))
    world = World()
    world.set(rows_of((*FIXED, *drawn.objects)))
    reached = set(leads(world))
    assert [one for one in (*reached, *credentials(world)) if not drawn.allows(one)] == []
    assert {one for one in asked(drawn) if drawn.allows(one)} <= reached
    assert not world.failures


@pytest.mark.parametrize("part", range(8))
def test_routers_get_the_secrets_that_are_granted_and_no_others(seed: int, part: int) -> None:
    drawn = draw(random.Random(f"secrets {seed} {part}"))
    world = World()
    world.set(
        rows_of(
            (*FIXED, *drawn.objects, *(make("Pod", "front-0", "{}", ns, labels="{app: front}") for ns in NAMESPACES))
        )
    )
    names = [f"kubernetes-gateway://{ns}/{name}" for ns in NAMESPACES for name in ("one", "two")]
    named = set(credentials(world))
    for ns in NAMESPACES:
        made = proxy("router", "front-0", ns, f"10.1.0.{ord(ns)}", {"app": "front"})
        router = msgspec.structs.replace(made, identity=f"spiffe://cluster.local/ns/{ns}/sa/x")
        got = set(world.secrets(world.connect(router), *names))
        for text in got:
            place, _, name = text.removeprefix("kubernetes-gateway://").partition("/")
            assert any((r.to, r.place, r.name) == ("Secret", place, name) and drawn.allows(r) for r in named), (
                f"{ns} got {text}"
            )


def test_a_grant_that_goes_takes_the_reference_with_it() -> None:
    route = gateway_object(
        "HTTPRoute", "r", "parentRefs: [{name: gw}], rules: [{backendRefs: [{name: one, namespace: b, port: 80}]}]", "a"
    )
    gateway = gateway_object(
        "Gateway", "gw", "gatewayClassName: istio, listeners: [{name: web, port: 80, protocol: HTTP}]", "a"
    )
    spec = f"from: [{{group: {GATEWAY_API}, kind: HTTPRoute, namespace: a}}], to: [{{group: '', kind: Service}}]"
    allowing = gateway_object("ReferenceGrant", "g", spec, "b", api=f"{GATEWAY_API}/v1beta1")
    world = World()
    world.set(rows_of((*FIXED, route, gateway)))
    assert not [one for one in leads(world) if one.place == "b"]
    rows = rows_of((allowing,))
    world.set(rows)
    assert [one.place for one in leads(world)] == ["b"]
    world.set(dict.fromkeys(rows))
    assert not [one for one in leads(world) if one.place == "b"]
