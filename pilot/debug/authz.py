"""Which AuthorizationPolicies a proxy has, and which of them decides about a request."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import ObjectKey
from pilot.debug.page import Query, Refused, asked_connection
from pilot.debug.sources import Sources
from pilot.envoy.listener.authorization_filters import compiled_policy
from pilot.envoy.listener.inbound.inbound_chain_keys import accepted_mtls, port_keys
from pilot.envoy.rbac.evaluate import RequestAttributes, meets
from pilot.lib.spiffe import PREFIX, identity
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.classify import inbound_facet
from pilot.mesh.security.policies import proxy_policies
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.trust import mesh_trust_domains

_SPACE_DELIMITED = ("scope", "permission")
_NO_CERTIFICATE = "denied", "PeerAuthentication: STRICT, and the client has no certificate of the mesh"


class AuthorizationQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A request, or a connection (`tcp`; None: by what the port speaks). `principal` is with or without `spiffe://`; `namespace` stands for some
    account of a namespace; `ip` is the address that connects, `remote_ip` the client's behind proxies, `to_ip` the one that is called ("": the
    proxy's first)."""

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
    """A policy, and the positions of its rules that the request meets."""

    key: ObjectKey
    action: str
    dry_run: bool
    provider: str
    met: tuple[int, ...]

    def __str__(self) -> str:
        return f"AuthorizationPolicy {self.key.namespace}/{self.key.name}"


def authz(sources: Sources, query: Query) -> Any:
    """Returns the policies of proxyID; with `request`, a question as JSON, also what they decide and why."""
    db, connection = sources.db, asked_connection(sources, query)
    node_id = connection.proxy_key
    sidecar = connection.proxy.type is NodeType.SIDECAR
    keys = proxy_policies(db, node_id).of(AUTHORIZATION_POLICY.id.name)
    if "request" not in query:
        return {"proxy": connection.proxy.id, "policies": [_show(e) for e in _evaluate(db, keys, False, None)]}
    asked = _question(query["request"])
    mode, speaks_tcp = _port(db, node_id, asked.port) if sidecar else ("", False)
    tcp = speaks_tcp if asked.tcp is None else asked.tcp
    own = connection.proxy.ips[0] if connection.proxy.ips else ""
    call = _call(asked, mesh_trust_domains(db)[0], own, tcp)
    found = _evaluate(db, keys, tcp, call)
    decision, why = _NO_CERTIFICATE if mode == "STRICT" and not call.principal else decide(found)
    head = {
        "proxy": connection.proxy.id,
        "protocol": "TCP" if tcp else "HTTP",
        "mutualTls": mode,
        "principal": call.principal,
    }
    return {**head, "decision": decision, "why": why, "policies": [_show(e) for e in found]}


def decide(policies: list[Evaluated]) -> tuple[str, str]:
    """Returns what policies decide together, "allowed", "denied" or "asked" (of an external authorizer), and why."""
    in_force = [p for p in policies if not p.dry_run]
    asked = next((p for p in in_force if p.action == "CUSTOM" and p.met), None)
    denied = next((p for p in in_force if p.action == "DENY" and p.met), None)
    if denied is not None:
        return "denied", f"{denied} denies it by rule {denied.met[0]}"
    allowing = [p for p in in_force if p.action == "ALLOW"]
    allowed = next((p for p in allowing if p.met), None)
    if allowing and allowed is None:
        return "denied", f"none of {len(allowing)} policies that allow has a rule for it"
    if asked is not None:
        return "asked", f"{asked} has the authorizer {asked.provider} decide by rule {asked.met[0]}"
    if allowed is not None:
        return "allowed", f"{allowed} allows it by rule {allowed.met[0]}"
    return "allowed", "no policy that allows is for this workload, and none denies it"


def _evaluate(db: Mesh, keys: tuple[ObjectKey, ...], tcp: bool, call: RequestAttributes | None) -> list[Evaluated]:
    found = []
    for key in keys:
        if (policy := compiled_policy(db, key, tcp)) is not None:
            met = tuple(_position(name) for name, rule in policy.rules if call is not None and meets(rule, call))
            found.append(Evaluated(key, policy.action, policy.dry_run, policy.provider, met))
    return found


def _position(rule_name: str) -> int:
    return int(rule_name.rpartition("rule[")[2].rstrip("]"))


def _show(policy: Evaluated) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "namespace": policy.key.namespace,
        "name": policy.key.name,
        "action": policy.action,
        "rulesMet": list(policy.met),
    }
    return (
        plain
        | ({"dryRun": True} if policy.dry_run else {})
        | ({"provider": policy.provider} if policy.provider else {})
    )


def _port(db: Mesh, node_id: str, number: int) -> tuple[str, bool]:
    """Returns what a sidecar accepts on a port, and whether the port is known to speak something other than HTTP."""
    inbound = inbound_facet(db, node_id)
    spec = next((s for s in port_keys(db, inbound) if number and s.number == number), None)
    known_tcp = spec is not None and spec.protocol.name != "UNSUPPORTED" and not spec.protocol.is_http
    return accepted_mtls(db, inbound).at(number), known_tcp


# -- the question ----------------------------------------------------------------------------------------------------------


def _question(text: str) -> AuthorizationQuestion:
    try:
        asked = msgspec.json.decode(text, type=AuthorizationQuestion)
        for address in filter(None, (asked.ip, asked.remote_ip, asked.to_ip)):
            ipaddress.ip_address(address)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused(400, f"request: {error}\n") from error
    return asked


def _call(asked: AuthorizationQuestion, trust_domain: str, own_address: str, tcp: bool) -> RequestAttributes:
    principal = PREFIX + asked.principal.removeprefix(PREFIX) if asked.principal else ""
    if not principal and asked.namespace:
        principal = identity(trust_domain, asked.namespace, "default")
    envoys = {":method": asked.method, ":path": asked.path, **({":authority": asked.host} if asked.host else {})}
    headers = {name.lower(): value for name, value in asked.headers.items()} | envoys
    return RequestAttributes(
        principal=principal,
        peer=asked.ip,
        client=asked.remote_ip,
        destination=asked.to_ip or own_address,
        port=asked.port,
        server_name=asked.sni,
        headers={} if tcp else headers,
        claims={} if tcp else _claims(asked.claims),
    )


def _claims(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the claims as policies see them: some are lists between blanks."""
    return {
        name: value.split() if name in _SPACE_DELIMITED and isinstance(value, str) else value
        for name, value in claims.items()
    }
