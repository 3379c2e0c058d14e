"""The proxies that an object affects: those that have its last change, and the reasons for which others lack it.

An object affects a proxy if a resource that the proxy receives was computed from it. All pages and commands that report
the delivery of an object's last change use this module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pilot.config.kind import AnyKind
from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef, plain_ref
from pilot.debug.silence import STALE, describe_silence, unanswered
from pilot.debug.slices import collect_all, collect_present
from pilot.debug.sources import CommittedObject, ConnectedProxy, Sources
from pilot.debug.terms import rejects, since
from pilot.derive import Node
from pilot.derive.explanation import walk_readers
from pilot.derive.graph import Derivation
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.text import cut
from pilot.lib.xds_types import CLUSTER, LISTENER, ROUTE, short_name
from pilot.mesh.analysis.nack import likely_causes
from pilot.mesh.model.nack import NackKey
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import inferred_imports, route_targets_of
from pilot.mesh.traffic.virtual_services import (
    egress_bindings,
    egress_virtual_services,
    virtual_services_at_waypoint,
    virtual_services_of,
)

LISTED = 20
"""Maximum number of proxies without the change that are listed."""
ERROR_LENGTH = 500
_NAMED = 3
"""Maximum number of objects that are named as the cause of a rejection."""
_ADDITIONS: frozenset[Derivation[..., Any]] = frozenset(
    {inferred_imports, route_targets_of, egress_bindings, egress_virtual_services}
)
"""Derivations whose values only add to those of their readers: an empty one has nothing to pass on."""
_VIRTUAL_SERVICES: frozenset[Derivation[..., Any]] = frozenset(
    {egress_virtual_services, virtual_services_of, virtual_services_at_waypoint}
)
"""Derivations of the keys of VirtualServices. One that is not in the value was read, but has no effect on it."""
_FIRST = frozenset({CLUSTER, LISTENER, ROUTE})
State = Literal["refused", "starting", "waiting", "sent", "unknown"]
STATES: tuple[State, ...] = ("refused", "starting", "waiting", "sent", "unknown")
"""The states of a proxy that does not have a change, worst first.

A proxy is `starting` until it has responded to its first configuration. `waiting` and `sent` are those of
`DeliveryState`. If the state is `unknown`, the object does not affect the proxy any more, but the proxy does not
respond, so it may still have an earlier version.
"""


class LackingProxy(NamedTuple):
    """A proxy that does not have the last change of an object.

    `types` are the short names of the types that it rejects or has not acknowledged. `error` is Envoy's message of a
    rejection, and `causes` are the objects that are known to cause it. `since` is the Unix time of the first rejected
    or the oldest unanswered response, or 0.0. `reason` is a phrase that continues "The proxy …". `silent` is true
    if the proxy is not responding.
    """

    id: str
    proxy: str
    state: State
    types: tuple[str, ...]
    error: str
    causes: tuple[ObjectRef, ...]
    since: float
    reason: str
    silent: bool = False

    def plain(self) -> dict[str, Any]:
        """Return the proxy as a JSON object."""
        return self._asdict() | {"causes": [plain_ref(ref) for ref in self.causes]}


class ObjectDelivery(NamedTuple):
    """The delivery of the last change of an object.

    `affected` is the number of connected proxies that it affects, of which `acknowledged` have the change. The others
    are those in `lacking` whose state is not `unknown`. `disconnected` proxies have disconnected before they responded.
    `time` is the Unix time of the change, and `since` that of the last response to it. They are 0.0 if unknown.
    """

    affected: int
    acknowledged: int
    disconnected: int
    lacking: tuple[LackingProxy, ...]
    time: float
    since: float

    def count(self, state: State) -> int:
        """Return the number of proxies in a state."""
        return sum(proxy.state == state for proxy in self.lacking)

    def plain(self) -> dict[str, Any]:
        """Return the delivery as a JSON object, which lists the first of the proxies that lack the change."""
        return {
            "affected": self.affected,
            "acknowledged": self.acknowledged,
            "disconnected": self.disconnected,
            **{state: self.count(state) for state in STATES},
            "lacking": [proxy.plain() for proxy in self.lacking[:LISTED]],
            "time": self.time,
            "since": self.since,
        }


async def find_delivery(
    sources: Sources, ref: ObjectRef, version: CommittedObject, connections: Sequence[ConnectedProxy]
) -> ObjectDelivery:
    """Return the delivery of the last change of an object to some of the proxies."""
    event = 0 if version.is_forgotten else version.event
    affected = await affected_proxies(sources, ref) if version.exists else {}
    now = time.time()
    lacking: list[LackingProxy] = await collect_present(
        _lacking(sources, c, _Question(ref, version, event, affected.get(c.id), now)) for c in connections
    )
    lacking.sort(key=lambda proxy: (STATES.index(proxy.state), proxy.proxy))
    late = {proxy.id for proxy in lacking}
    change = next((change for change in sources.changes if change.number == event), None) if event else None
    outcome = sources.changes.outcome(change) if change is not None else None
    is_alone = change is not None and change.total + change.endpoints == 1
    has = sum(c.id in affected and c.id not in late for c in connections)
    if not affected and outcome is not None and (not version.exists or is_alone):
        has = outcome.acknowledged
    pending = sum(proxy.state != "unknown" for proxy in lacking)
    return ObjectDelivery(
        has + pending,
        has,
        outcome.disconnected if outcome is not None else 0,
        tuple(lacking),
        change.time if change is not None else 0.0,
        change.time + outcome.seconds if change is not None and outcome is not None and not pending else 0.0,
    )


async def affected_proxies(sources: Sources, ref: ObjectRef) -> Mapping[str, frozenset[str]]:
    """Return the connected proxies that an object affects: the types of the resources that were computed from it, by
    the ID of the connection.

    The type is "" if the object determines which resources the proxy receives. Effects of an object that only a hub
    passes on, such as the list of all networks, are not included.
    """
    roots: list[Node] = await collect_present(_root_nodes(sources.db, ref))
    own = ObjectKey(ref.namespace, ref.name) if ref.kind == VIRTUAL_SERVICE.id else None

    def passes_on(at: Node) -> bool:
        keys = at.value if own is not None and at.fn in _VIRTUAL_SERVICES else None
        is_omitted = isinstance(keys, tuple) and own not in keys
        return not is_omitted and (at.fn not in _ADDITIONS or bool(at.value))

    nodes = await collect_all(walk_readers(roots, passes_on))
    types: dict[str, set[str]] = {}

    def add_readers() -> Iterator[None]:
        for type_url, connections in sources.fleet.readers(nodes):
            for connection in connections:
                types.setdefault(connection.id, set()).add(type_url)
            yield

    await collect_all(add_readers())
    return {key: frozenset(urls) for key, urls in types.items()}


def find_key(db: Mesh, kind: AnyKind, ref: ObjectRef) -> ObjectKey | RegistryKey:
    """Return the key of an object in the local cluster or, if it exists only in others, in one of these."""
    own: ObjectKey | RegistryKey = kind.key(db.settings.registry.cluster_id, ref.namespace, ref.name)
    table = db.tables[kind.table_name]
    if not kind.per_cluster or table.peek(own) is not None:
        return own
    others = {key.cluster for key, _ in table.rows() if isinstance(key, RegistryKey)}
    keys = (RegistryKey(cluster, ref.namespace, ref.name) for cluster in sorted(others))
    return next((key for key in keys if table.peek(key) is not None), own)


def _root_nodes(db: Mesh, ref: ObjectRef) -> Iterator[Node | None]:
    """Yield the node of the object's row, and the nodes of objects that were derived from it. Otherwise, yield None."""
    kind = db.catalogue.find(ref.kind)
    if kind is None:
        return
    yield db.find_node(db.tables[kind.table_name].row_reader, find_key(db, kind, ref))
    for other in db.catalogue:
        for node in other.derived_rows(db):
            origin = node.value.origin
            yield node if origin is not None and ref in origin.parents else None


class _Question(NamedTuple):
    """An object, its last change, and the types of a proxy's resources that it affects, or None if there are none."""

    ref: ObjectRef
    version: CommittedObject
    event: int
    types: frozenset[str] | None
    now: float


def _lacking(sources: Sources, connection: ConnectedProxy, about: _Question) -> LackingProxy | None:
    """Return the proxy if it lacks the change, and None if it has it or is not affected."""
    state = _state(sources, connection, about)
    if state is None:
        return None
    rejects = {url: watch for url, watch in connection.subscriptions.items() if watch.last_error}
    late = unanswered(connection)
    if state != "refused":
        silence = describe_silence(connection, about.now)
        is_first = state == "starting"
        reason = silence or ("is receiving its first configuration" if is_first else "is being updated")
        if state == "unknown":
            reason = f"{reason}, so it may still have an earlier version"
        of = connection.id, connection.proxy.id, state, late.types
        return LackingProxy(*of, "", (), late.since, reason, bool(silence))
    causes = rejection_causes(sources, connection)
    error = "; ".join(cut(watch.last_error, ERROR_LENGTH) for watch in rejects.values())
    types = tuple(short_name(url) for url in rejects)
    first = min((watch.rejected_since for watch in rejects.values()), default=0.0)
    return LackingProxy(
        connection.id,
        connection.proxy.id,
        "refused",
        types,
        error or connection.refusal(about.event),
        causes,
        first,
        _rejection(types, error or connection.refusal(about.event), causes, about.ref, first),
    )


def _rejection(types: Sequence[str], error: str, causes: Sequence[ObjectRef], ref: ObjectRef, first: float) -> str:
    """Return the phrase about a rejection. It names the objects that cause it if the object is not one of them."""
    if not types:
        return f"has rejected it: {error}"
    because = f" because of {name_causes(causes)}" if causes and ref not in causes else ""
    return f"{rejects(1, types)}{since(first)}{because}: {error}"


def rejection_causes(sources: Sources, connection: ConnectedProxy) -> tuple[ObjectRef, ...]:
    """Return the objects that may be the cause of a proxy's current rejections, the most likely first."""
    rejects = (url for url, watch in connection.subscriptions.items() if watch.last_error)
    nacks = (sources.db.nacks.peek(NackKey(connection.proxy_key, url)) for url in rejects)
    return tuple(dict.fromkeys(ref for nack in nacks if nack is not None for ref in likely_causes(nack.objects)))


def name_causes(causes: Sequence[ObjectRef]) -> str:
    """Return the first objects that may cause a rejection as text."""
    return " or ".join(f"{one.kind.name} {one.namespace}/{one.name}" for one in causes[:_NAMED])


def _state(sources: Sources, connection: ConnectedProxy, about: _Question) -> State | None:
    """Return the state of a proxy that lacks the change, or None if it has the change or is not affected."""
    is_affected = about.types is not None
    if not connection.has_started:
        knows_all = connection.subscriptions.keys() >= _FIRST and _is_current(sources, connection, about.now)
        if knows_all and not is_affected:
            return None
        return "refused" if _is_refused(connection, about) else "starting"
    if about.event or about.version.is_forgotten:
        state = connection.delivery(about.event)
        if state != "done":
            if is_affected or not _is_current(sources, connection, about.now):
                return state
            return None if about.version.is_new else "unknown" if _is_late(connection, about.now) else state
    return "refused" if _is_refused(connection, about) else None


def _is_refused(connection: ConnectedProxy, about: _Question) -> bool:
    """Return whether a proxy has rejected resources that were computed from the object, or from an earlier version."""
    reason = connection.refusal(about.event)
    if not reason:
        return False
    if about.types is None:
        return about.event > connection.last_event and not about.version.is_new
    rejected = reason.partition(":")[0]
    rejects = {short_name(url) for url, watch in connection.subscriptions.items() if watch.last_error}
    return "" in about.types or not rejects.union((rejected,)).isdisjoint(map(short_name, about.types))


def _is_late(connection: ConnectedProxy, now: float) -> bool:
    """Return whether a proxy has not acknowledged a response for too long. It may have rejected it."""
    waits = (w.sent_at for w in connection.subscriptions.values() if w.sent_at and w.nonce_sent != w.nonce_acked)
    return now - min(waits, default=now) >= STALE


def _is_current(sources: Sources, connection: ConnectedProxy, now: float) -> bool:
    """Return whether it is known which objects affect a proxy: everything that it receives has been computed.

    Nothing is computed for a proxy that does not respond. The resources that it was sent are used instead.
    """
    plan = sources.db.find_node(proxy_plan, connection.proxy_key)
    nodes = (*connection.nodes(), *((plan,) if plan is not None else ()))
    return _is_late(connection, now) or not any(node.stale for node in nodes)
