"""The debug page authz, which lists a proxy's AuthorizationPolicies and evaluates a request against them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, PEER_AUTHENTICATION
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, plain_ref
from pilot.debug.page import Query, Refused, requested_connection
from pilot.debug.required_identity import identity_policies
from pilot.debug.rule_text import show_rule
from pilot.debug.sources import Sources
from pilot.envoy.listener.authorization_filters import compiled_policy
from pilot.envoy.listener.inbound.inbound_chain_keys import accepted_mtls, port_keys
from pilot.envoy.rbac.evaluate import RequestAttributes, rule_matches
from pilot.lib.spiffe import PREFIX, identity
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.classify import inbound_facet
from pilot.mesh.security.policies import proxy_policies
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.trust import mesh_trust_domains

MAX_RULES = 20
"""Maximum number of rules of a policy that are shown."""
_SPACE_DELIMITED = ("scope", "permission")
_NO_CERTIFICATE = "denied", "PeerAuthentication is STRICT and the client has no mesh certificate"


class AuthorizationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A request to evaluate, or a TCP connection if `tcp` is true.

    If `tcp` is None, the protocol of the port decides. `principal` may have the prefix `spiffe://`, or be a service
    account of the mesh as NAMESPACE/ACCOUNT. If it is "", the default service account of `namespace` is used. `ip` is
    the source address, and `remote_ip` is the address of the client behind proxies. `to_ip` is the destination, by
    default the proxy's first address.
    """

    tcp: bool | None = None
    method: str = "GET"
    path: str = "/"
    host: str = ""
    headers: dict[str, str] = {}
    principal: str = ""
    namespace: str = ""
    ip: str = ""
    remote_ip: str = ""
    to_ip: str = ""
    port: int = 0
    sni: str = ""
    claims: dict[str, Any] = {}


class Evaluated(NamedTuple):
    """A policy, and the indexes of its rules that match the request."""

    key: ObjectKey
    action: str
    dry_run: bool
    provider: str
    met: tuple[int, ...]

    def __str__(self) -> str:
        return f"AuthorizationPolicy {self.key.namespace}/{self.key.name}"


def authz(sources: Sources, query: Query) -> Any:
    """Return the policies of the proxy.

    If the query contains a `request` as JSON, also return the decision and the reason.
    """
    db, connection = sources.db, requested_connection(sources, query)
    node_id = connection.proxy_key
    sidecar = connection.proxy.type is NodeType.SIDECAR
    keys = proxy_policies(db, node_id).of(AUTHORIZATION_POLICY.id.name)
    if "request" not in query:
        return {
            "proxy": connection.proxy.id,
            **(_accepted_clients(db, node_id, keys) if sidecar else {}),
            "policies": [_show(db, e) for e in _evaluate(db, keys, False, None)],
        }
    request = _decode_request(query["request"])
    mode, speaks_tcp = _port(db, node_id, request.port) if sidecar else ("", False)
    tcp = speaks_tcp if request.tcp is None else request.tcp
    own_address = connection.proxy.ips[0] if connection.proxy.ips else ""
    call = _request_attributes(request, mesh_trust_domains(db)[0], own_address, tcp)
    evaluated = _evaluate(db, keys, tcp, call)
    decision, why = _NO_CERTIFICATE if mode == "STRICT" and not call.principal else decide(evaluated)
    head = {
        "proxy": connection.proxy.id,
        "protocol": "TCP" if tcp else "HTTP",
        "mutualTls": mode,
        "principal": call.principal,
    }
    return {
        **head,
        "decision": decision,
        "why": why,
        "policies": [_show(db, e) | {"rulesMet": list(e.met)} for e in evaluated],
    }


def _accepted_clients(db: Mesh, node_id: str, keys: tuple[ObjectKey, ...]) -> dict[str, Any]:
    """Return the mTLS mode of a sidecar, the PeerAuthentications that set it, and the policies that need identities."""
    modes = proxy_policies(db, node_id).of(PEER_AUTHENTICATION.id.name)
    rows = [row for key in keys if (row := AUTHORIZATION_POLICY.get(db, key)) is not None]
    return {
        "mutualTls": accepted_mtls(db, inbound_facet(db, node_id)).at(0),
        "mtlsBy": [plain_ref(ObjectRef(PEER_AUTHENTICATION.id, *key)) for key in modes],
        "identityBy": [plain_ref(row.ref) for row in identity_policies(rows)[:MAX_RULES]],
    }


def decide(policies: list[Evaluated]) -> tuple[str, str]:
    """Return the combined decision of the policies, and the reason for it.

    The decision is "allowed", "denied" or, if an external authorizer makes it, "asked".
    """
    in_force = [p for p in policies if not p.dry_run]
    delegating = next((p for p in in_force if p.action == "CUSTOM" and p.met), None)
    denied = next((p for p in in_force if p.action == "DENY" and p.met), None)
    allowing = [p for p in in_force if p.action == "ALLOW"]
    allowed = next((p for p in allowing if p.met), None)
    if denied is not None:
        also = "; no ALLOW policy matches either" if allowing and allowed is None else ""
        return "denied", f"{denied} matches with spec.rules[{denied.met[0]}]{also}"
    if allowing and allowed is None:
        if len(allowing) == 1:
            return "denied", f"{allowing[0]} is the only ALLOW policy, and none of its rules matches"
        return "denied", f"none of the {len(allowing)} ALLOW policies has a matching rule"
    if delegating is not None:
        return (
            "asked",
            f"{delegating} delegates to the external authorizer {delegating.provider} with "
            f"spec.rules[{delegating.met[0]}]",
        )
    if allowed is not None:
        return "allowed", f"{allowed} matches with spec.rules[{allowed.met[0]}]"
    return "allowed", "no ALLOW policy applies to this workload, and no DENY policy matches"


def _evaluate(db: Mesh, keys: tuple[ObjectKey, ...], tcp: bool, call: RequestAttributes | None) -> list[Evaluated]:
    evaluated = []
    for key in keys:
        if (policy := compiled_policy(db, key, tcp)) is not None:
            met = tuple(_position(name) for name, rule in policy.rules if call is not None and rule_matches(rule, call))
            evaluated.append(Evaluated(key, policy.action, policy.dry_run, policy.provider, met))
    return evaluated


def _position(rule_name: str) -> int:
    return int(rule_name.rpartition("rule[")[2].rstrip("]"))


def _show(db: Mesh, policy: Evaluated) -> dict[str, Any]:
    row = AUTHORIZATION_POLICY.get(db, policy.key)
    rules = row.spec.rules if row is not None else ()
    plain: dict[str, Any] = {
        "namespace": policy.key.namespace,
        "name": policy.key.name,
        "action": policy.action,
        "rules": [show_rule(rule) for rule in rules[:MAX_RULES]],
        "moreRules": max(0, len(rules) - MAX_RULES),
    }
    return (
        plain
        | ({"dryRun": True} if policy.dry_run else {})
        | ({"provider": policy.provider} if policy.provider else {})
    )


def _port(db: Mesh, node_id: str, number: int) -> tuple[str, bool]:
    """Return the mTLS mode of a sidecar's port, and whether the port's protocol is known and is not HTTP."""
    inbound = inbound_facet(db, node_id)
    spec = next((s for s in port_keys(db, inbound) if number and s.number == number), None)
    known_tcp = spec is not None and spec.protocol.name != "UNSUPPORTED" and not spec.protocol.is_http
    return accepted_mtls(db, inbound).at(number), known_tcp


# -- the request ------------------------------------------------------------


def _decode_request(text: str) -> AuthorizationRequest:
    try:
        request = msgspec.json.decode(text, type=AuthorizationRequest)
        for address in filter(None, (request.ip, request.remote_ip, request.to_ip)):
            ipaddress.ip_address(address)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused(400, f"invalid request: {error}\n") from error
    return request


def _request_attributes(
    request: AuthorizationRequest, trust_domain: str, own_address: str, tcp: bool
) -> RequestAttributes:
    namespace, slash, account = request.principal.partition("/")
    if slash and "/" not in account:
        principal = identity(trust_domain, namespace, account)
    elif request.principal:
        principal = PREFIX + request.principal.removeprefix(PREFIX)
    else:
        principal = identity(trust_domain, request.namespace, "default") if request.namespace else ""
    envoys = {
        ":method": request.method,
        ":path": request.path,
        **({":authority": request.host} if request.host else {}),
    }
    headers = {name.lower(): value for name, value in request.headers.items()} | envoys
    return RequestAttributes(
        principal=principal,
        peer=request.ip,
        client=request.remote_ip,
        destination=request.to_ip or own_address,
        port=request.port,
        server_name=request.sni,
        headers={} if tcp else headers,
        claims={} if tcp else _claims(request.claims),
    )


def _claims(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims in the form that policies match. Space-delimited claims are split into lists."""
    return {
        name: value.split() if name in _SPACE_DELIMITED and isinstance(value, str) else value
        for name, value in claims.items()
    }
