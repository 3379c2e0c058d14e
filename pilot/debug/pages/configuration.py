"""Debug pages of configuration and of problems in it, such as configz, resourcesz, mesh and problemz."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pilot.config.builtins import to_builtins
from pilot.config.kind import AnyKind
from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import Object, age
from pilot.config.problem import Problem, plain_problem
from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.debug.page import Later, Query, Refused
from pilot.debug.pages.places import FilePlace, find_places
from pilot.debug.pages.rejections import explain_problems
from pilot.debug.silence import silent_proxies
from pilot.debug.slices import collect_all, collect_present
from pilot.debug.sources import Sources
from pilot.lib.suggestion import did_you_mean
from pilot.mesh.analysis.nack import REJECTED
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

_COMPARED = 30
"""Maximum number of namespaces that are compared with one that does not exist."""


def resourcesz(sources: Sources, query: Query) -> Any:
    """Return the supported kinds."""
    return [
        {"group": kind.id.group, "version": kind.versions[0], "kind": kind.id.name} for kind in sources.db.catalogue
    ]


async def configz(sources: Sources, query: Query) -> Any:
    """Return all objects of Istio's kinds in Kubernetes' format, grouped by kind. Derived objects are included."""
    istio_kinds = sorted((kind for kind in sources.db.catalogue if kind.is_istio), key=lambda kind: kind.id.name)
    rows_by_kind = [(kind, await collect_all(_rows(sources.db, kind))) for kind in istio_kinds]
    return Later(
        lambda: (
            to_kubernetes(f"{kind.id.group}/{kind.versions[0]}", o)
            for kind, rows in rows_by_kind
            for _, o in sorted(rows)
        )
    )


def _rows(db: Mesh, kind: AnyKind) -> Iterator[tuple[Any, Object[Any]]]:
    if not kind.sources:
        yield from list(kind.table(db).rows())
        return
    for key in kind.all_keys(db):
        row = kind.get(db, key)
        if row is not None:
            yield key, row


def authorizationz(sources: Sources, query: Query) -> Any:
    """Return all AuthorizationPolicies, grouped by namespace and ordered by age, oldest first."""
    rows, root = (
        [row for _, row in AUTHORIZATION_POLICY.table(sources.db).rows()],
        mesh_config(sources.db).root_namespace,
    )
    return Later(lambda: {"authorization_policies": show_policies(rows, root)})


def show_policies(rows: Iterable[Object[AuthorizationPolicy]], root: str) -> dict[str, Any]:
    """Return AuthorizationPolicies, grouped by namespace and ordered by age, oldest first."""
    rows_by_namespace: dict[str, list[Object[AuthorizationPolicy]]] = {}
    for row in rows:
        rows_by_namespace.setdefault(row.namespace, []).append(row)
    policies = {
        namespace: [_policy(row) for row in sorted(namespace_rows, key=age)]
        for namespace, namespace_rows in sorted(rows_by_namespace.items())
    }
    return {"namespace_to_policies": policies, "root_namespace": root}


def _policy(o: Object[AuthorizationPolicy]) -> dict[str, Any]:
    return {
        "name": o.name,
        "namespace": o.namespace,
        "annotations": dict(o.annotations) or None,
        "spec": to_builtins(o.spec),
    }


def mesh(sources: Sources, query: Query) -> Any:
    """Return the mesh config in force."""
    return to_builtins(sources.db.mesh.peek("mesh"), with_defaults=True)


async def problemz(sources: Sources, query: Query) -> Any:
    """Return the current problems in users' objects. If the query contains `proxies`, include those of proxies that are
    not responding.

    If it contains `namespace`, include only objects and proxies in it, and objects from which proxies in it reject
    resources. Raise Refused if there is nothing in the namespace.
    """
    namespace = query.get("namespace")
    every = await collect_all(sources.problems())
    if query.get("proxies"):
        every += await collect_present(silent_proxies(sources, time.time()))
    problems: list[Problem] = await collect_present(
        p if namespace is None or _concerns(sources.db, p, namespace) else None for p in every
    )
    if namespace and not problems:
        names = frozenset(await collect_all(_namespaces(sources)))
        if namespace not in names:
            similar = sorted(names, key=lambda name: (abs(len(name) - len(namespace)), name))[:_COMPARED]
            hint = did_you_mean(namespace, similar)
            raise Refused(404, f"there are no objects in the namespace {namespace!r}{hint}\n")
    problems = await explain_problems(sources, problems)
    places = await find_places(sources, ((p.object, p.path) for p in problems if not p.file))
    return await collect_all(plain_problem(_placed(p, places.get((p.object, p.path)))) for p in problems)


def _concerns(db: Mesh, problem: Problem, namespace: str) -> bool:
    """Return whether a problem's object is in a namespace, or is rejected by a proxy in it."""
    if problem.object.namespace == namespace or problem.code != REJECTED:
        return problem.object.namespace == namespace
    proxies = (db.proxies.peek(key.proxy) for key in db.nacks.keys("object", problem.object))
    return any(proxy is not None and proxy.namespace == namespace for proxy in proxies)


def _namespaces(sources: Sources) -> Iterator[str]:
    """Yield the namespace of each proxy and object, or the name of the object if it is a namespace."""
    for connection in sources.fleet.connections():
        yield connection.proxy.namespace
    for kind in sources.db.catalogue:
        for key, _ in tuple(kind.table(sources.db).rows()):
            yield key.name if kind.id.name == "Namespace" else key.namespace


def _placed(problem: Problem, place: FilePlace | None) -> Problem:
    if problem.file or place is None:
        return problem
    return msgspec.structs.replace(problem, file=place.file, line=place.line)


def inject(sources: Sources, _: Query) -> Any:
    """Return the injection templates, keyed by name. Raise Refused if injection is disabled."""
    templates = sources.templates()
    if templates is None:
        raise Refused(404, "404 page not found\n")
    return dict(templates)


def to_kubernetes(api_version: str, o: Object[Any]) -> dict[str, Any]:
    """Return an object in Kubernetes' format. Metadata that was dropped is missing."""
    metadata: dict[str, Any] = {"name": o.name, "namespace": o.namespace, "creationTimestamp": o.created}
    metadata |= {"labels": dict(o.labels), "annotations": dict(o.annotations)}
    return {
        "apiVersion": api_version,
        "kind": o.kind.name,
        "metadata": {name: value for name, value in metadata.items() if value},
        "spec": to_builtins(o.spec),
    }
