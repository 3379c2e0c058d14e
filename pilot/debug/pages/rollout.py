"""Debug pages of the delivery of changes: the rollout of an object, and the history of changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from pilot.config.kind import AnyKind
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef, Severity, plain_problem, plain_ref
from pilot.debug.object_delivery import LISTED, ObjectDelivery, find_delivery, rejection_causes
from pilot.debug.page import Query, Refused
from pilot.debug.pages.rejections import MAX_EXPLAINED, explain_cluster, unknown_cluster
from pilot.debug.slices import collect_present
from pilot.debug.sources import CommittedObject, ConnectedProxy, Sources
from pilot.lib.suggestion import closest, did_you_mean

MAX_REJECTING = 100
"""Maximum number of proxies whose rejections are attributed to objects in the history."""
_COMPARED = 1000
"""Maximum number of names that are compared with the name of an object that does not exist."""


async def rollout(sources: Sources, query: Query) -> Any:
    """Return how far the last change of an object has been delivered.

    The query contains `kind`, `name` and optionally `namespace`. It selects a version by `generation` and `uid`, by
    `fingerprint`, or the absence of the object by `absent`. If it contains `proxy`, only proxies whose ID contains that
    text count.
    """
    kind = _find_kind(sources, query.get("kind", ""))
    namespace = (query.get("namespace") or "default") if kind.namespaced else ""
    ref = ObjectRef(kind.id, namespace, query.get("name", ""))
    if not ref.name:
        raise Refused(400, "You must provide the kind and the name of an object in the query string\n")
    version = sources.find_object(ref)
    if version is None:
        raise Refused(400, f"the delivery of {kind.id.name} is not tracked\n")
    text = query.get("proxy", "")
    connections = [c for c in sources.fleet.connections() if text in c.proxy.id]
    delivery = await find_delivery(sources, ref, version, connections)
    errors = await collect_present(
        p if p.object == ref and p.severity is Severity.ERROR and p.code != "refused" else None
        for p in sources.problems()
    )
    # The object may have changed between two slices. Another page will tell.
    is_current = _is_expected(version, query) and version == sources.find_object(ref)
    return {
        "kind": kind.id.name,
        "namespace": ref.namespace,
        "name": ref.name,
        "exists": version.exists,
        "ignored": version.is_ignored,
        "current": is_current,
        "generation": version.generation,
        "uid": version.uid,
        "manager": version.manager,
        "change": version.event,
        "connected": len(connections),
        **delivery.plain(),
        "lacking": await _lacking(sources, delivery, connections),
        "errors": [plain_problem(problem) for problem in errors[:LISTED]],
        "delivered": is_current and not delivery.lacking,
        **({} if version.exists else {"similar": _similar(sources, kind, ref)}),
    }


async def history(sources: Sources, query: Query) -> Any:
    """Return the last changes, newest first, with what they made the control plane compute and write.

    `errors` are the current errors of the objects that were not changed again. `refusedFor` are the objects because of
    which proxies have rejected a change and still do, with the number of proxies. `requests` is the cost of what
    proxies requested, and `others` that of older changes. `total` is the sum of all.
    """
    changes = sources.changes
    errors = await collect_present(p if p.severity is Severity.ERROR else None for p in sources.problems())
    rejecting = await _rejecting(sources)
    shown = [
        change | {"refusedFor": _refused_for(change["number"], rejecting) if change.get("refused") else []}
        for change in changes.list_plain(errors)
    ]
    return {
        "changes": shown,
        "requests": changes.requests.plain(),
        "others": changes.others.plain(),
        "total": changes.total().plain(),
    }


class _Rejecting(NamedTuple):
    """A proxy that rejects resources, and the objects that may be the cause."""

    connection: ConnectedProxy
    causes: tuple[ObjectRef, ...]


async def _rejecting(sources: Sources) -> list[_Rejecting]:
    """Return the first proxies that reject resources for known causes."""
    every: list[_Rejecting] = await collect_present(
        _Rejecting(connection, causes) if (causes := rejection_causes(sources, connection)) else None
        for connection in sources.fleet.connections()
    )
    return every[:MAX_REJECTING]


def _refused_for(number: int, rejecting: Sequence[_Rejecting]) -> list[dict[str, Any]]:
    """Return the objects because of which proxies have rejected a change, with the number of proxies."""
    counts = Counter(
        ref
        for one in rejecting
        if number > one.connection.last_event and one.connection.refusal(number)
        for ref in one.causes
    )
    return [plain_ref(ref) | {"proxies": count} for ref, count in counts.most_common(LISTED)]


async def _lacking(
    sources: Sources, delivery: ObjectDelivery, connections: Sequence[ConnectedProxy]
) -> list[dict[str, Any]]:
    """Return the first proxies that lack the change as JSON objects, with explanations of the first rejections."""
    by_id = {connection.id: connection for connection in connections}
    shown = []
    for number, proxy in enumerate(delivery.lacking[:LISTED]):
        name = unknown_cluster(proxy.error) if number < MAX_EXPLAINED else ""
        why = await explain_cluster(sources, by_id[proxy.id], name) if name else ""
        shown.append(proxy.plain() | ({"reason": f"{proxy.reason}; {why}"} if why else {}))
    return shown


def _is_expected(version: CommittedObject, query: Query) -> bool:
    """Return whether the tables have the version that the query selects, or a later one."""
    generation = query.get("generation", "")
    if generation and not (generation.isascii() and generation.isdecimal()):
        raise Refused(400, f"{generation!r} is not a generation\n")
    if not version.is_current or version.exists == bool(query.get("absent")):
        return False
    if query.get("fingerprint") and version.fingerprint != query["fingerprint"]:
        return False
    if query.get("uid") and version.uid != query["uid"]:
        return False
    return not generation or version.generation >= int(generation[:19])


def _similar(sources: Sources, kind: AnyKind, ref: ObjectRef) -> list[str]:
    """Return the objects that may be meant by the name of one that does not exist, as NAMESPACE/NAME."""
    keys = [key.object if isinstance(key, RegistryKey) else key for key in kind.all_keys(sources.db)]
    meant = [key for key in keys if key.name == ref.name or f"{key.name}.{key.namespace}" == ref.name]
    if not meant:
        name = closest(ref.name, [key.name for key in keys if key.namespace == ref.namespace][:_COMPARED])
        meant = [ObjectKey(ref.namespace, name)] if name else []
    return [f"{key.namespace}/{key.name}" for key in dict.fromkeys(meant)][:LISTED]


def _find_kind(sources: Sources, text: str) -> AnyKind:
    """Return the kind with a name, such as VirtualService, virtualservices, vs or gateway.networking.istio.io.

    Raise Refused if there is none, or if several kinds have the name.
    """
    kinds = sources.db.catalogue.named(text)
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        names = " or ".join(f"{kind.id.name}.{kind.id.group}" for kind in kinds)
        raise Refused(400, f"{text!r} is ambiguous: use {names}\n")
    suggestion = did_you_mean(text.lower(), (kind.id.name.lower() for kind in sources.db.catalogue))
    raise Refused(400, f"no kind {text!r}{suggestion}\n")
