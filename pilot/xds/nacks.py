"""What proxies refuse is traced back to the objects that users wrote, and becomes rows, which whoever tells users reads.

A refusal names resources, or none. Of the objects that a resource follows from those are meant that have changed since the proxy last took a
response of the type; where none has, all that it follows from are, unless they are too many to say anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pilot.config.group_kind import parse_kind
from pilot.config.problem import ObjectRef
from pilot.derive import UNSET
from pilot.derive.explain import explain
from pilot.envoy.plans import plan
from pilot.envoy.plans.plan import Group
from pilot.envoy.resource import Resource
from pilot.ingest.batch import Clock, Timer
from pilot.lib.text import cut
from pilot.lib.xds_types import short_name
from pilot.mesh.model.nack import Refusal, RefusalKey
from pilot.mesh.tables.database import Mesh
from pilot.xds.connection import Connection
from pilot.xds.discovery import Discovery

SOON = 0.2
"""Seconds in which refusals gather: proxies of one class refuse the same thing at once."""
MOST_RESOURCES, MOST_OBJECTS = 50, 20
_TEXT = 300
Blamed = tuple[ObjectRef, ...]
Cause = tuple[str, str, tuple[Group, ...], int]
"""Type URL, message, groups of the type, and the revision up to which the proxy has taken everything."""


class Refusals:
    """Takes note of what proxies refuse and take again. `sweep` forgets those that have gone."""

    def __init__(self, db: Mesh, discovery: Discovery, clock: Clock) -> None:
        self._db, self._discovery, self._clock = db, discovery, clock
        self._waiting: dict[RefusalKey, tuple[Connection, str]] = {}
        self._timer: Timer | None = None
        discovery.refusals = self

    def refused(self, connection: Connection, type_url: str, message: str) -> None:
        """Takes note of a refusal."""
        self._waiting[RefusalKey(connection.proxy_key, type_url)] = connection, message
        if self._timer is None:
            self._timer = self._clock.call_later(SOON, self._look)

    def taken(self, connection: Connection, type_url: str) -> None:
        """Takes note that a proxy has taken a response."""
        key = RefusalKey(connection.proxy_key, type_url)
        if self._db.refusals.peek(key) is not None:
            self._discovery.commit([(self._db.refusals, key, None)], {})

    def sweep(self) -> None:
        """Forgets what proxies refused that are not connected any more."""
        connected = {connection.proxy_key for connection in self._discovery.connections()}
        gone = [(self._db.refusals, key, None) for key, _ in self._db.refusals.rows() if key.proxy not in connected]
        if gone:
            self._discovery.commit(gone, {})

    def _look(self) -> None:
        """Called by the timer: makes rows of what has gathered. Each cause is looked at once."""
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        known: dict[Cause, Blamed] = {}
        rows = []
        for key, (connection, message) in waiting.items():
            watch = connection.watches.get(key.type_url)
            if watch is None or not watch.last_error:
                continue
            groups = plan(self._db, connection.proxy_key).groups_of(key.type_url, frozenset(watch.names) - {"*"}) or ()
            cause = key.type_url, message, tuple(groups), connection.taken_revision(key.type_url)
            if cause not in known:
                known[cause] = self._blame(groups, message, cause[3])
            row = Refusal(connection.proxy.id, short_name(key.type_url).upper(), cut(message, _TEXT), known[cause])
            rows.append((self._db.refusals, key, row))
        if rows:
            self._discovery.commit(rows, {})

    def _blame(self, groups: Iterable[Group], message: str, since: int) -> Blamed:
        """Returns the objects that what is refused follows from."""
        found = [(group, resource) for group in groups for resource in self._resources(group)]
        named = [(group, resource) for group, resource in found if resource.name and resource.name in message]
        suspects = named or (found if len(found) <= MOST_RESOURCES else [])
        revisions: dict[ObjectRef, int] = {}
        for group, resource in suspects:
            revisions.update(self._objects(group, resource))
        changed = [ref for ref, revision in revisions.items() if revision > since] if since >= 0 else []
        blamed = sorted(changed or revisions)
        return tuple(blamed) if len(blamed) <= MOST_OBJECTS else ()

    def _resources(self, group: Group) -> Iterable[Resource]:
        node = self._db.find_node(group.fn, *group.args)
        return node.value.values() if node is not None and node.value is not UNSET else ()

    def _objects(self, group: Group, resource: Resource) -> Iterator[tuple[ObjectRef, int]]:
        """Yields the objects that a resource follows from, with the revision in which each changed last."""
        node = self._db.find_node(group.fn, *group.args)
        for reason in explain(self._db, node, resource).rows if node is not None else ():
            kind = self._db.catalogue.find(parse_kind(reason.table))
            row = self._db.find_node(self._db.tables[reason.table].row_reader, reason.key)
            if kind is not None and not kind.per_cluster and row is not None:
                yield ObjectRef(kind.id, reason.key.namespace, reason.key.name), row.changed_at  # type: ignore[attr-defined]
