"""Records NACKs as rows, with the users' objects that caused them.

The causes of a NACK are the objects that the rejected resources were derived from. If the NACK names resources, only
these resources are considered. If it names clusters, only the VirtualServices and DestinationRules for their hosts are
causes. If some of the objects have changed since the proxy last acknowledged a response of the type, only these objects
are causes. If there are too many causes, none is recorded. While a proxy rejects further responses with the same
message, the causes of the first of them remain: objects that change in the meantime are not added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from pilot.config.group_kind import parse_kind
from pilot.config.kinds.istio import DESTINATION_RULE, VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.derive import UNSET
from pilot.derive.explanation import explain
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.plans.resource_group import Group
from pilot.envoy.resource import Resource
from pilot.ingest.batch import Clock, Timer
from pilot.lib.hosts import full_name
from pilot.lib.text import cut
from pilot.lib.xds_types import short_name
from pilot.mesh.model.nack import Nack, NackKey
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import qualified
from pilot.xds.push.connection import Connection
from pilot.xds.push.discovery import Discovery

DEBOUNCE = 0.2
"""Number of seconds for which NACKs are collected, because similar proxies reject a resource at the same time."""
MAX_RESOURCES, MAX_OBJECTS = 50, 20
_MAX_MESSAGE_LENGTH = 300
_MAX_SEARCHED = 4_000
"""Maximum length of the part of a message that is searched for clusters."""
_CLUSTER_HOST = re.compile(r"outbound\|\d{1,5}\|[^|\s]{0,253}\|([\w.*-]{1,253})")
Causes = tuple[ObjectRef, ...]
NackContext = tuple[str, str, tuple[Group, ...], int]
"""The type URL, the message, the groups of the type, and the revision that the proxy last acknowledged."""


class NackLog(Protocol):
    """Handles NACKs and ACKs."""

    def on_nack(self, connection: Connection, type_url: str, message: str) -> None: ...
    def on_ack(self, connection: Connection, type_url: str) -> None: ...


class NoNackLog:
    """Ignores NACKs and ACKs."""

    def on_nack(self, connection: Connection, type_url: str, message: str) -> None:
        """Do nothing."""

    def on_ack(self, connection: Connection, type_url: str) -> None:
        """Do nothing."""


class NackRecorder:
    """A `NackLog` that writes rows. `sweep` removes the rows of disconnected proxies."""

    def __init__(self, db: Mesh, discovery: Discovery, clock: Clock) -> None:
        self._db, self._discovery, self._clock = db, discovery, clock
        self._pending: dict[NackKey, tuple[Connection, str]] = {}
        self._timer: Timer | None = None

    def on_nack(self, connection: Connection, type_url: str, message: str) -> None:
        """Record a NACK after the debounce time."""
        self._pending[NackKey(connection.proxy_key, type_url)] = connection, message
        if self._timer is None:
            self._timer = self._clock.call_later(DEBOUNCE, self._record)

    def on_ack(self, connection: Connection, type_url: str) -> None:
        """Remove the NACK of a proxy that has acknowledged a response."""
        key = NackKey(connection.proxy_key, type_url)
        if self._db.nacks.peek(key) is not None:
            self._discovery.commit([(self._db.nacks, key, None)], {})

    def sweep(self) -> None:
        """Remove the NACKs of disconnected proxies."""
        connected = {connection.proxy_key for connection in self._discovery.connections()}
        deletions = [(self._db.nacks, key, None) for key, _ in self._db.nacks.rows() if key.proxy not in connected]
        if deletions:
            self._discovery.commit(deletions, {})

    def _record(self) -> None:
        """Write rows for the pending NACKs. The causes of equal NACKs are determined only once."""
        self._timer = None
        pending, self._pending = self._pending, {}
        causes: dict[NackContext, Causes] = {}
        rows = []
        for key, (connection, message) in pending.items():
            subscription = connection.subscriptions.get(key.type_url)
            if subscription is None or not subscription.last_error:
                continue
            names = frozenset(subscription.names) - {"*"}
            groups = proxy_plan(self._db, connection.proxy_key).groups_of(key.type_url, names) or ()
            context = key.type_url, message, tuple(groups), connection.acked_revision(key.type_url)
            if context not in causes:
                causes[context] = self._find_causes(groups, message, context[3])
            text = cut(message, _MAX_MESSAGE_LENGTH)
            objects = self._first_causes(key, text, causes[context])
            row = Nack(connection.proxy.id, short_name(key.type_url).upper(), text, objects)
            rows.append((self._db.nacks, key, row))
        if rows:
            self._discovery.commit(rows, {})

    def _first_causes(self, key: NackKey, text: str, causes: Causes) -> Causes:
        """Return the causes that the proxy's previous NACK has too, or all causes if it was for another reason."""
        previous = self._db.nacks.peek(key)
        if previous is None or previous.message != text:
            return causes
        return tuple(ref for ref in causes if ref in previous.objects) or causes

    def _find_causes(self, groups: Iterable[Group], message: str, since: int) -> Causes:
        """Return the objects that the rejected resources were derived from."""
        candidates = [(group, resource) for group in groups for resource in self._resources(group)]
        mentioned = [(group, resource) for group, resource in candidates if resource.name and resource.name in message]
        suspects = mentioned or (candidates if len(candidates) <= MAX_RESOURCES else [])
        revisions: dict[ObjectRef, int] = {}
        for group, resource in suspects:
            revisions.update(self._objects(group, resource))
        hosts = set(_CLUSTER_HOST.findall(message[:_MAX_SEARCHED]))
        concerned = {ref: at for ref, at in revisions.items() if hosts and self._mentions(ref, hosts)} or revisions
        changed = [ref for ref, revision in concerned.items() if revision > since] if since >= 0 else []
        causes = sorted(changed or concerned)
        return tuple(causes) if len(causes) <= MAX_OBJECTS else ()

    def _mentions(self, ref: ObjectRef, hosts: set[str]) -> bool:
        """Return whether a VirtualService or DestinationRule mentions one of the hosts."""
        db, key = self._db, ObjectKey(ref.namespace, ref.name)
        if ref.kind == VIRTUAL_SERVICE.id and (route := qualified(db, key)) is not None:
            return not hosts.isdisjoint(_hosts(route.spec))
        if ref.kind == DESTINATION_RULE.id and (rule := DESTINATION_RULE.get(db, key)) is not None:
            return full_name(rule.spec.host, ref.namespace, db.settings.registry.domain) in hosts
        return False

    def _resources(self, group: Group) -> Iterable[Resource]:
        node = self._db.find_node(group.fn, *group.args)
        return node.value.values() if node is not None and node.value is not UNSET else ()

    def _objects(self, group: Group, resource: Resource) -> Iterator[tuple[ObjectRef, int]]:
        """Yield the objects that a resource was derived from, with the revision of each object's last change."""
        node = self._db.find_node(group.fn, *group.args)
        for reason in explain(self._db, node, resource).rows if node is not None else ():
            kind = self._db.catalogue.find(parse_kind(reason.table))
            row = self._db.find_node(self._db.tables[reason.table].row_reader, reason.key)
            if kind is not None and not kind.per_cluster and row is not None:
                yield ObjectRef(kind.id, reason.key.namespace, reason.key.name), row.changed_at  # type: ignore[attr-defined]


def _hosts(spec: VirtualService) -> Iterator[str]:
    """Yield the hosts of a VirtualService and of its destinations."""
    yield from spec.hosts
    routes = (rule.route for rules in (spec.http, spec.tls, spec.tcp) for rule in rules)
    yield from (to.destination.host for route in routes for to in route if to.destination is not None)
    for rule in spec.http:
        yield from (rule.mirror.host,) if rule.mirror is not None else ()
        yield from (to.destination.host for to in rule.mirrors if to.destination is not None)
