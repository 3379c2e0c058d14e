"""The effects of errors: requests that fail, or an object that is not in force."""

from __future__ import annotations

import re
from typing import NamedTuple

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.object import ObjectKey
from pilot.config.problem import Problem
from pilot.debug.dashboard.mesh import FAILING
from pilot.debug.object_delivery import find_key
from pilot.debug.terms import first_names
from pilot.lib.text import cut
from pilot.mesh.analysis.opaque_port import CONNECTIONS_CLOSED, REQUESTS_FAIL
from pilot.mesh.analysis.route_port import ignores_http
from pilot.mesh.tables.database import Mesh

UNREADY = "no-ready-endpoint"
_ROUTE = re.compile(r"spec\.(http|tls|tcp)\[(\d{1,6})\]\.route\[(\d{1,6})\]\.")
_LONGEST_HOST = 100


class ErrorEffect(NamedTuple):
    """The effect of an error as a phrase, or "" if it is not known. `fails` is true if requests fail."""

    text: str
    fails: bool = False


def effect_of(db: Mesh, problem: Problem) -> ErrorEffect:
    """Return the effect of an error."""
    if problem.is_rejection:
        kind = db.catalogue.find(problem.object.kind)
        if kind is None:
            return ErrorEffect("")
        is_in_force = kind.get(db, find_key(db, kind, problem.object)) is not None
        return ErrorEffect("its last valid version is in force" if is_in_force else "it is not in force")
    if problem.code == UNREADY:
        is_closed = problem.message.endswith(CONNECTIONS_CLOSED)
        return ErrorEffect(CONNECTIONS_CLOSED if is_closed else REQUESTS_FAIL, True)
    return _effect_of_route(db, problem) if problem.code in FAILING else ErrorEffect("")


def _effect_of_route(db: Mesh, problem: Problem) -> ErrorEffect:
    """Return the effect of a missing destination on the requests that a VirtualService routes to it."""
    ref, match = problem.object, _ROUTE.match(problem.path)
    key = ObjectKey(ref.namespace, ref.name)
    row = VIRTUAL_SERVICE.get(db, key) if ref.kind == VIRTUAL_SERVICE.id else None
    if row is None or match is None or (match[1] == "http" and ignores_http(db, key)):
        return ErrorEffect("")
    protocol, rule, index = match[1], int(match[2]), int(match[3])
    rules = getattr(row.spec, protocol)
    route = rules[rule].route if rule < len(rules) else ()
    if index >= len(route) or (len(route) > 1 and not route[index].weight):
        return ErrorEffect("")
    share = f"{100 * route[index].weight / sum(one.weight for one in route):.3g} % of " if len(route) > 1 else ""
    hosts = [cut(host, _LONGEST_HOST).removesuffix(f".svc.{db.settings.registry.domain}") for host in row.spec.hosts]
    to = f" to {first_names(hosts)}" if hosts else ""
    chosen = f" that match spec.{protocol}[{rule}]" if rules[rule].match else ""
    what, end = ("requests", "get 503") if protocol == "http" else ("connections", "are closed")
    return ErrorEffect(f"{share}{what}{to}{chosen} {end}", True)
