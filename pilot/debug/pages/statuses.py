"""The debug page statusz, which shows the status of Gateway API objects and Ingresses, including those from files."""

from __future__ import annotations

from typing import Any

from pilot.debug.page import Query, Refused
from pilot.debug.sources import Sources
from pilot.lib.suggestion import did_you_mean
from pilot.mesh.status.object_status import AMBIENT_KINDS, KINDS, object_status, objects_with_status
from pilot.mesh.status.plain_status import plain_status


def statusz(sources: Sources, query: Query) -> Any:
    """Return the status of each object that has one. The query can filter objects by `namespace` and `kind`.

    Raise Refused if objects of the kind have no status.
    """
    namespace, kind, controller = (
        query.get("namespace"),
        query.get("kind", "").lower(),
        sources.db.settings.gateway_api.controller,
    )
    names = sorted({kind.name for kind in (*KINDS, *AMBIENT_KINDS)})
    if kind and kind not in map(str.lower, names):
        suggestion = did_you_mean(kind, names)
        raise Refused(400, f"objects of the kind {kind!r} have no status{suggestion}; kinds are {', '.join(names)}\n")
    selected = [
        ref
        for ref in objects_with_status(sources.db)
        if (namespace is None or ref.namespace == namespace) and kind in ("", ref.kind.name.lower())
    ]
    statuses = ((ref, object_status(sources.db, ref)) for ref in selected)
    return [
        {"group": ref.kind.group, "kind": ref.kind.name, "namespace": ref.namespace, "name": ref.name}
        | {"status": plain_status(status, ref.kind, controller)}
        for ref, status in statuses
        if status is not None
    ]
