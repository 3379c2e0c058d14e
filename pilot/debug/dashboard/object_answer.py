"""One object: as it is in force, as it is written in its file, and its problems."""

from __future__ import annotations

import asyncio
from typing import Any

from pilot.config.kinds.kubernetes import SECRET
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, plain_problem, plain_ref
from pilot.debug import certificates
from pilot.debug.dashboard.mesh import links_of_route
from pilot.debug.object_delivery import find_delivery, find_key
from pilot.debug.page import Refused
from pilot.debug.pages.configuration import to_kubernetes
from pilot.debug.slices import collect_all
from pilot.debug.sources import Sources

MAX_PROBLEMS = 100


async def describe_object(sources: Sources, ref: ObjectRef) -> dict[str, Any]:
    """Return an object as a JSON object. Raise Refused if there is neither an object nor a problem of it.

    `object` is what is in force, and `text` what the file contains, with the number of its first line. They differ if
    the object is `invalid`. The content of Secrets is never returned.
    """
    kind = sources.db.catalogue.find(ref.kind)
    problems = [p for p in await collect_all(sources.problems()) if p.object == ref][:MAX_PROBLEMS]
    row = kind.get(sources.db, find_key(sources.db, kind, ref)) if kind is not None else None
    if row is None and not problems:
        raise Refused(404, f"{ref} does not exist\n")
    is_secret = ref.kind == SECRET.id
    source = sources.document_of(ref) or next((p.file for p in problems if p.file), "")
    lines = (0, "") if is_secret else await asyncio.to_thread(sources.read_text, source, ref)
    plain: dict[str, Any] | None = None
    if row is not None and kind is not None:
        plain = to_kubernetes("/".join(filter(None, (kind.id.group, kind.versions[0]))), row)
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
        "hosts": list(hosts) if ref.kind.name == "VirtualService" else [],
        "certificates": [validity._asdict() for validity in ends],
        "problems": [plain_problem(p) for p in problems],
        "delivery": delivery.plain() if delivery is not None else None,
        "invalid": any(p.is_rejection for p in problems),
    }
