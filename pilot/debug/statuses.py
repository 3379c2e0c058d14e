"""What becomes of objects of the Gateway API and of Ingresses: their status, which an API server has too and files have not."""

from __future__ import annotations

from typing import Any

from pilot.debug.page import Query
from pilot.debug.sources import Sources
from pilot.mesh.status.object_status import object_status, objects_with_status
from pilot.mesh.status.plain_status import plain_status


def statusz(sources: Sources, query: Query) -> Any:
    """Returns the status of every object that has one; with `namespace` or `kind` only of those of it."""
    namespace, kind, controller = (
        query.get("namespace"),
        query.get("kind", "").lower(),
        sources.db.settings.gateway_api.controller,
    )
    asked = [
        ref
        for ref in objects_with_status(sources.db)
        if (namespace is None or ref.namespace == namespace) and kind in ("", ref.kind.name.lower())
    ]
    found = ((ref, object_status(sources.db, ref)) for ref in asked)
    return [
        {"group": ref.kind.group, "kind": ref.kind.name, "namespace": ref.namespace, "name": ref.name}
        | {"status": plain_status(status, ref.kind, controller)}
        for ref, status in found
        if status is not None
    ]
