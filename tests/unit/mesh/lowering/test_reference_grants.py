"""Cross-namespace references of every kind take effect only with a ReferenceGrant in the target namespace."""

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
    """A reference from an object of a kind in a namespace to another object."""

    kind: str
    namespace: str
    to: str
    place: str
    name: str


class RandomMesh(NamedTuple):
    """A mesh of random references and grants."""

    objects: tuple[Plain, ...]
    grants: tuple[dict[str, Any], ...]

    def allows(self, reference: Reference) -> bool:
        """Independent reading of the specification: same namespace, or one grant there with matching `from` and `to`."""
        if reference.namespace == reference.place:
            return True
        for random_grant in self.grants:
            by = {"group": GATEWAY_API, "kind": reference.kind, "namespace": reference.namespace} in random_grant[
                "spec"
            ]["from"]
            targets = [
                to
                for to in random_grant["spec"]["to"]
                if (to["group"], to["kind"]) == ("", reference.to) and to.get("name", reference.name) == reference.name
            ]
            if random_grant["metadata"]["namespace"] == reference.place and by and targets:
                return True
        return False


def random_mesh(rng: random.Random) -> RandomMesh:
    objects: list[Plain] = []
    for n, ns in enumerate(NAMESPACES):
        listeners = "{name: web, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, " + ", ".join(
            f"{{name: {kind.lower()}, port: {90 + i}, protocol: {PROTOCOLS[kind]}, allowedRoutes: {{namespaces: {{from: All}}}}"
            + (", tls: {mode: Passthrough}}" if PROTOCOLS[kind] == "TLS" else "}")
            for i, kind in enumerate(ROUTES)
        )
        roots = f"{{group: '', kind: {rng.choice(('Secret', 'ConfigMap'))}, name: one, namespace: {rng.choice(NAMESPACES)}}}"
        safe = f"{{name: safe, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{random_secret(rng)}, {random_secret(rng)}]}}}}"
        has_frontend_roots = rng.random() < 0.5
        frontend = (
            f", tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{roots}]}}}}}}}}"
            if has_frontend_roots
            else ""
        )
        head = "gatewayClassName: istio, addresses: [{type: Hostname, value: front}], allowedListeners: {namespaces: {from: All}}"
        objects.append(gateway_object("Gateway", "gw", f"{head}, listeners: [{listeners}, {safe}]{frontend}", ns))
        extra = f"{{name: safe, port: 44{n}, protocol: HTTPS, tls: {{certificateRefs: [{random_secret(rng)}]}}}}"
        of = f"parentRef: {{name: gw, namespace: {rng.choice(NAMESPACES)}}}"
        objects.append(gateway_object("ListenerSet", "ls", f"{of}, listeners: [{extra}]", ns))
        for kind in ROUTES:
            copied = f", filters: [{{type: RequestMirror, requestMirror: {{backendRef: {random_backend(rng)}}}}}]"
            mirror = copied if kind in ("HTTPRoute", "GRPCRoute") else ""
            parent = f"{{name: gw, namespace: {rng.choice(NAMESPACES)}, sectionName: {kind.lower()}}}"
            rule = f"{{backendRefs: [{random_backend(rng)}, {random_backend(rng)}]{mirror}}}"
            objects.append(gateway_object(kind, kind.lower(), f"parentRefs: [{parent}], rules: [{rule}]", ns))
    grants = tuple(random_grant(rng, n) for n in range(rng.randrange(1, 14)))
    return RandomMesh((*objects, *grants), grants)


def random_secret(rng: random.Random) -> str:
    return f"{{name: {rng.choice(('one', 'two'))}, namespace: {rng.choice(NAMESPACES)}}}"


def random_backend(rng: random.Random) -> str:
    return f"{{name: {rng.choice(('one', 'two'))}, namespace: {rng.choice(NAMESPACES)}, port: 80}}"


def random_grant(rng: random.Random, n: int) -> Plain:
    """Return a random grant, which may match no reference."""
    by = [
        (
            rng.choice((GATEWAY_API, "other.io")),
            rng.choice((*ROUTES, "Gateway", "ListenerSet")),
            rng.choice(NAMESPACES),
        )
        for _ in range(2)
    ]
    to = [
        (
            rng.choice(("", "apps")),
            rng.choice(("Service", "Secret", "ConfigMap")),
            rng.choice(("one", "two", "")),
        )
        for _ in range(2)
    ]
    froms = ", ".join(f"{{group: '{g}', kind: {k}, namespace: {ns}}}" for g, k, ns in by)
    tos = ", ".join(f"{{group: '{g}', kind: {k}{', name: ' + name if name else ''}}}" for g, k, name in to)
    return gateway_object(
        "ReferenceGrant",
        f"g{n}",
        f"from: [{froms}], to: [{tos}]",
        rng.choice(NAMESPACES),
        api=f"{GATEWAY_API}/v1beta1",
    )


def destination_references(world: World) -> Iterator[Reference]:
    """Yield the destinations of derived VirtualServices as references of the routes they stem from."""
    for key in VIRTUAL_SERVICE.all_keys(world.mesh):
        row = VIRTUAL_SERVICE.get(world.mesh, key)
        assert row is not None
        assert row.origin is not None
        parents = {f"{p.namespace}.{p.name}": p for p in row.origin.parents}
        rules: list[Any] = [*row.spec.http, *row.spec.tcp, *row.spec.tls]
        for rule in rules:
            parent_name = rule.name.rpartition(".")[0] if isinstance(rule, HTTPRoute) else ""
            parent = parents[parent_name] if parent_name else row.origin.parents[0]
            destinations: list[Any] = [*rule.route, *(rule.mirrors if isinstance(rule, HTTPRoute) else ())]
            for to in destinations:
                if to.destination is not None and to.destination.host.endswith(".svc.cluster.local"):
                    name, place, *_ = to.destination.host.split(".")
                    yield Reference(parent.kind.name, parent.namespace, "Service", place, name)


def credential_references(world: World) -> Iterator[Reference]:
    """Yield the credentials named by derived Gateways as references."""
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


def backend_references(mesh: RandomMesh) -> Iterator[Reference]:
    """Yield the backends named by routes."""
    for route in mesh.objects:
        for rule in route["spec"].get("rules", ()):
            refs = [*rule["backendRefs"], *(f["requestMirror"]["backendRef"] for f in rule.get("filters", ()))]
            yield from (
                Reference(route["kind"], route["metadata"]["namespace"], "Service", ref["namespace"], ref["name"])
                for ref in refs
            )


@pytest.mark.parametrize("part", range(25))
def test_only_permitted_references_take_effect(seed: int, part: int) -> None:
    mesh = random_mesh(random.Random(f"grants {seed} {part}"))
    world = World()
    world.set(rows_of((*FIXED, *mesh.objects)))
    reached = set(destination_references(world))
    assert [reference for reference in (*reached, *credential_references(world)) if not mesh.allows(reference)] == []
    assert {reference for reference in backend_references(mesh) if mesh.allows(reference)} <= reached
    assert not world.failures


@pytest.mark.parametrize("part", range(8))
def test_routers_get_only_permitted_secrets(seed: int, part: int) -> None:
    mesh = random_mesh(random.Random(f"secrets {seed} {part}"))
    world = World()
    world.set(
        rows_of(
            (*FIXED, *mesh.objects, *(make("Pod", "front-0", "{}", ns, labels="{app: front}") for ns in NAMESPACES))
        )
    )
    names = [f"kubernetes-gateway://{ns}/{name}" for ns in NAMESPACES for name in ("one", "two")]
    references = set(credential_references(world))
    for ns in NAMESPACES:
        router_proxy = proxy("router", "front-0", ns, f"10.1.0.{ord(ns)}", {"app": "front"})
        router = msgspec.structs.replace(router_proxy, identity=f"spiffe://cluster.local/ns/{ns}/sa/x")
        secrets = set(world.secrets(world.connect(router), *names))
        for text in secrets:
            place, _, name = text.removeprefix("kubernetes-gateway://").partition("/")
            assert any((r.to, r.place, r.name) == ("Secret", place, name) and mesh.allows(r) for r in references), (
                f"{ns} got {text}"
            )


def test_deleted_grant_revokes_the_reference() -> None:
    route = gateway_object(
        "HTTPRoute", "r", "parentRefs: [{name: gw}], rules: [{backendRefs: [{name: one, namespace: b, port: 80}]}]", "a"
    )
    gateway = gateway_object(
        "Gateway", "gw", "gatewayClassName: istio, listeners: [{name: web, port: 80, protocol: HTTP}]", "a"
    )
    spec = f"from: [{{group: {GATEWAY_API}, kind: HTTPRoute, namespace: a}}], to: [{{group: '', kind: Service}}]"
    reference_grant = gateway_object("ReferenceGrant", "g", spec, "b", api=f"{GATEWAY_API}/v1beta1")
    world = World()
    world.set(rows_of((*FIXED, route, gateway)))
    assert not [reference for reference in destination_references(world) if reference.place == "b"]
    rows = rows_of((reference_grant,))
    world.set(rows)
    assert [reference.place for reference in destination_references(world)] == ["b"]
    world.set(dict.fromkeys(rows))
    assert not [reference for reference in destination_references(world) if reference.place == "b"]
