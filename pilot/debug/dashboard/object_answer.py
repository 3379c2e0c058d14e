"""One object: as it is in force, as it is written in its file, and its problems."""

from __future__ import annotations

import asyncio
from typing import Any

from pilot.config.kinds.istio import GATEWAY, SIDECAR, VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, SECRET
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, Problem, plain_problem, plain_ref
from pilot.debug import certificates
from pilot.debug.dashboard.mesh import gateways_of_proxy, links_of_route, problem_hosts
from pilot.debug.hidden_services import SidecarEffect, effects_of_sidecar
from pilot.debug.object_delivery import find_delivery, find_key
from pilot.debug.page import Refused
from pilot.debug.pages.configuration import to_kubernetes
from pilot.debug.slices import collect_all, collect_present
from pilot.debug.sources import Sources
from pilot.lib.suggestion import closest
from pilot.mesh.registry.services import refs_by_hostname, service_refs
from pilot.mesh.tables.database import Mesh

MAX_PROBLEMS = 100
MAX_USERS, MAX_HOSTS = 20, 10
"""Maximum number of the Gateways of a Secret and of their proxies, and of the hosts of a Gateway."""


async def describe_object(sources: Sources, ref: ObjectRef) -> dict[str, Any]:
    """Return an object as a JSON object. Raise Refused if there is neither an object nor a problem of it.

    `object` is what is in force, and `text` what the file contains, with the number of its first line. They differ if
    the object is `invalid`. The content of Secrets is never returned.
    """
    kind = sources.db.catalogue.find(ref.kind)
    every = await collect_all(sources.problems())
    problems = [p for p in every if p.object == ref][:MAX_PROBLEMS]
    row = kind.get(sources.db, find_key(sources.db, kind, ref)) if kind is not None else None
    if row is None and not problems:
        raise Refused(404, f"{ref} does not exist\n")
    is_secret = ref.kind == SECRET.id
    source = sources.document_of(ref) or next((p.file for p in problems if p.file), "")
    lines = (0, "") if is_secret else await asyncio.to_thread(sources.read_text, source, ref)
    plain: dict[str, Any] | None = None
    if row is not None and kind is not None:
        plain = to_kubernetes("/".join(filter(None, (kind.id.group, kind.versions[0]))), row)
        if ref.kind == ENDPOINT_SLICE.id:
            plain |= plain.pop("spec")
        if is_secret:
            plain["spec"] = {"keys": sorted(row.spec.data)}
    ends = certificates.validity(certificates.of_secret(ref, row.spec.data)) if is_secret and row is not None else []
    hosts = {link.target: None for link in links_of_route(sources.db, ObjectKey(ref.namespace, ref.name))}
    origin = row.origin if row is not None else None
    version = sources.find_object(ref)
    delivery = (
        await find_delivery(sources, ref, version, sources.fleet.connections())
        if version is not None and version.exists
        else None
    )
    return {
        "ref": plain_ref(ref),
        "version": kind.versions[0] if kind is not None else "",
        "source": source,
        "line": lines[0],
        "text": lines[1],
        "object": plain,
        "derivedFrom": [plain_ref(parent) for parent in origin.parents] if origin is not None else [],
        "hosts": [_destination(sources.db, host) for host in hosts] if ref.kind == VIRTUAL_SERVICE.id else [],
        "certificates": [validity._asdict() for validity in ends],
        "usedBy": await _gateways_with(sources, ref) if is_secret else [],
        "problems": [plain_problem(p) for p in problems],
        "routeProblems": [plain_problem(p) for p in await _route_problems(sources, ref, every)],
        "effects": [effect.plain() for effect in await _sidecar_effects(sources, ref)],
        "delivery": delivery.plain() if delivery is not None else None,
        "invalid": any(p.is_rejection for p in problems),
    }


def _destination(db: Mesh, host: str) -> dict[str, str]:
    """Return a destination's host, the namespace of its service or "", and a similar host if there is no service."""
    ref = next(iter(refs_by_hostname(db, host)), None)
    name, _, rest = host.partition(".")
    namespace, _, domain = rest.partition(".")
    similar = ""
    if ref is None:
        names = closest(
            namespace, {other.namespace for other in service_refs(db) if other.hostname.startswith(f"{name}.")}
        )
        similar = f"{name}.{names}.{domain}" if names else ""
    return {"host": host, "namespace": ref.namespace if ref is not None else "", "similar": similar}


async def _gateways_with(sources: Sources, secret: ObjectRef) -> list[dict[str, Any]]:
    """Return the Gateways that use a Secret, the hosts of these servers, and the first of the Gateway's proxies."""
    uses = await certificates.uses_of_secret(sources, secret)
    selected = await collect_all((c, gateways_of_proxy(sources.db, c.proxy_key)) for c in sources.fleet.connections())
    users = []
    for use in uses[:MAX_USERS]:
        proxies = [{"id": c.id, "name": c.proxy.id} for c, gateways in selected if use.gateway in gateways]
        users.append(
            {
                "gateway": plain_ref(ObjectRef(GATEWAY.id, *use.gateway)),
                "hosts": use.hosts[:MAX_HOSTS],
                "moreHosts": max(0, len(use.hosts) - MAX_HOSTS),
                "proxies": proxies[:MAX_USERS],
                "total": len(proxies),
            }
        )
    return users


async def _sidecar_effects(sources: Sources, ref: ObjectRef) -> list[SidecarEffect]:
    """Return the effects of a Sidecar on proxies, or [] for other kinds."""
    is_sidecar = ref.kind == SIDECAR.id
    return await effects_of_sidecar(sources, ObjectKey(ref.namespace, ref.name)) if is_sidecar else []


async def _route_problems(sources: Sources, ref: ObjectRef, problems: list[Problem]) -> list[Problem]:
    """Return the problems of the routes that make requests to a Gateway fail."""
    if ref.kind != GATEWAY.id:
        return []
    place = f"gateway {ref.namespace}/{ref.name}"
    of_routes = (p for p in problems if p.object.kind == VIRTUAL_SERVICE.id)
    return (await collect_present(p if place in problem_hosts(sources, p) else None for p in of_routes))[:MAX_PROBLEMS]
