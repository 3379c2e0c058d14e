"""Explains references of the Gateway API to other namespaces that no ReferenceGrant allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pilot.config.gateway_api.gateway import Gateway, ListenerSet
from pilot.config.gateway_api.grpc_route import GRPCRoute, GRPCRouteRule
from pilot.config.gateway_api.http_route import HTTPRoute, HTTPRouteFilter, HTTPRouteRule
from pilot.config.gateway_api.l4_route import TCPRoute, TLSRoute, UDPRoute
from pilot.config.gateway_api.reference import BackendObjectReference, SecretObjectReference
from pilot.config.group_kind import GATEWAY_API, GroupKind
from pilot.config.kinds.gateway_api import REFERENCE_GRANT
from pilot.config.object import Object
from pilot.config.problem import Problems, warning
from pilot.mesh.gateway_api.reference_grants import ReferenceKey, may_refer
from pilot.mesh.tables.database import Mesh

NOT_PERMITTED = "ref-not-permitted"
_MISTAKEN = {GATEWAY_API: ("", "networking.k8s.io", f"{GATEWAY_API}/v1"), "": ("core", "v1", "apps")}
"""Wrong groups that are common in ReferenceGrants, by the group that is meant."""
Reference = BackendObjectReference | SecretObjectReference


def check_references(db: Mesh, o: Object[Any]) -> Problems:
    """Yield a problem for each object of another namespace to which a route, Gateway or ListenerSet may not refer."""
    for path, ref in _references(o.spec):
        kind, namespace = GroupKind(ref.group, ref.kind), ref.namespace or o.namespace
        reference = ReferenceKey(o.kind, o.namespace, kind, namespace, ref.name)
        if not may_refer(db, reference):
            remedy = _wrong_group(db, reference) or (
                f"add a ReferenceGrant in the namespace {namespace} that allows {o.kind.name}s of {o.namespace} to use "
                f"{ref.kind}s"
            )
            yield warning(
                NOT_PERMITTED,
                f"spec.{path}",
                f"{ref.kind} {namespace}/{ref.name} is in another namespace, and no ReferenceGrant allows its use; "
                f"{remedy}",
            )


def _wrong_group(db: Mesh, reference: ReferenceKey) -> str:
    """Return how to correct a ReferenceGrant that would permit a reference, but for a group, or "" if there is none."""
    source, namespace, target, place, _ = reference
    mistaken = [("from", source, GroupKind(group, source.name)) for group in _MISTAKEN.get(source.group, ())]
    mistaken += [("to", target, GroupKind(group, target.name)) for group in _MISTAKEN.get(target.group, ())]
    for field, right, wrong in mistaken:
        by, of = (wrong, target) if field == "from" else (source, wrong)
        for key in REFERENCE_GRANT.keys(db, "pair", (by, namespace, of, place)):
            return (
                f"in spec.{field} of ReferenceGrant {place}/{key.name}, {right.name} has the group {wrong.group!r}; "
                f"write {right.group!r}"
            )
    return ""


def _references(spec: Any) -> Iterator[tuple[str, Reference]]:
    if isinstance(spec, HTTPRoute | GRPCRoute):
        rules: tuple[HTTPRouteRule | GRPCRouteRule, ...] = spec.rules
        for r, rule in enumerate(rules):
            yield from _mirrors(f"rules[{r}]", rule.filters)
            for b, ref in enumerate(rule.backend_refs):
                yield f"rules[{r}].backendRefs[{b}]", ref
                yield from _mirrors(f"rules[{r}].backendRefs[{b}]", ref.filters)
    elif isinstance(spec, TCPRoute | TLSRoute | UDPRoute):
        for r, l4_rule in enumerate(spec.rules):
            yield from ((f"rules[{r}].backendRefs[{b}]", ref) for b, ref in enumerate(l4_rule.backend_refs))
    elif isinstance(spec, Gateway | ListenerSet):
        for n, listener in enumerate(spec.listeners):
            for c, secret in enumerate(listener.tls.certificate_refs if listener.tls is not None else ()):
                yield f"listeners[{n}].tls.certificateRefs[{c}]", secret
        backend = spec.tls.backend if isinstance(spec, Gateway) and spec.tls is not None else None
        if backend is not None and backend.client_certificate_ref is not None:
            yield "tls.backend.clientCertificateRef", backend.client_certificate_ref


def _mirrors(path: str, filters: tuple[HTTPRouteFilter, ...]) -> Iterator[tuple[str, Reference]]:
    for index, one in enumerate(filters):
        if one.request_mirror is not None:
            yield f"{path}.filters[{index}].requestMirror.backendRef", one.request_mirror.backend_ref
