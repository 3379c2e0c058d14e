"""What the users configured, and what is wrong with it: configz, resourcesz, mesh, problemz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pilot.config.builtins import to_builtins
from pilot.config.kind import AnyKind
from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import Object, age
from pilot.config.problem import plain_problem
from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.debug.page import Later, Query, Refused
from pilot.debug.slices import all_of
from pilot.debug.sources import Sources
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


def resourcesz(sources: Sources, query: Query) -> Any:
    """Returns the kinds that are read."""
    return [
        {"group": kind.id.group, "version": kind.versions[0], "kind": kind.id.name} for kind in sources.db.catalogue
    ]


async def configz(sources: Sources, query: Query) -> Any:
    """Returns every object of Istio's kinds, as Kubernetes would show it, by kind; those too that follow from objects of other kinds."""
    ours = sorted((kind for kind in sources.db.catalogue if kind.is_istio), key=lambda kind: kind.id.name)
    found = [(kind, await all_of(_rows(sources.db, kind))) for kind in ours]
    return Later(
        lambda: (
            to_kubernetes(f"{kind.id.group}/{kind.versions[0]}", o) for kind, rows in found for _, o in sorted(rows)
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
    """Returns every AuthorizationPolicy by namespace, oldest first."""
    rows, root = (
        [row for _, row in AUTHORIZATION_POLICY.table(sources.db).rows()],
        mesh_config(sources.db).root_namespace,
    )
    return Later(lambda: {"authorization_policies": show_policies(rows, root)})


def show_policies(rows: Iterable[Object[AuthorizationPolicy]], root: str) -> dict[str, Any]:
    """Returns AuthorizationPolicies by namespace, oldest first."""
    found: dict[str, list[Object[AuthorizationPolicy]]] = {}
    for row in rows:
        found.setdefault(row.namespace, []).append(row)
    policies = {
        namespace: [_policy(row) for row in sorted(of_it, key=age)] for namespace, of_it in sorted(found.items())
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
    """Returns the mesh config in force."""
    return to_builtins(sources.db.mesh.peek("mesh"), with_defaults=True)


def problemz(sources: Sources, query: Query) -> Any:
    """Returns what is wrong with users' objects now, alone and with each other; with `namespace`, only with those in it."""
    namespace = query.get("namespace")
    return [plain_problem(p) for p in sources.problems() if namespace is None or p.object.namespace == namespace]


def inject(sources: Sources, _: Query) -> Any:
    """Returns the templates of injection as they are written, by their names. Refused where there is no injection."""
    found = sources.templates()
    if found is None:
        raise Refused(404, "404 page not found\n")
    return dict(found)


def to_kubernetes(api_version: str, o: Object[Any]) -> dict[str, Any]:
    """Returns an object with the metadata that is kept of it."""
    metadata: dict[str, Any] = {"name": o.name, "namespace": o.namespace, "creationTimestamp": o.created}
    metadata |= {"labels": dict(o.labels), "annotations": dict(o.annotations)}
    return {
        "apiVersion": api_version,
        "kind": o.kind.name,
        "metadata": {name: value for name, value in metadata.items() if value},
        "spec": to_builtins(o.spec),
    }
