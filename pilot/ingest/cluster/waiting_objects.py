"""Decodes the objects that had to wait until the control plane was ready.

Until the objects of a namespace that may restrict access are decoded, its workloads deny all requests and connections:
such an object must not open what it closes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef, Problem, warning
from pilot.config.security.authorization_policy import AuthorizationPolicy, Rule
from pilot.ingest.cluster.kube_objects import EditSink, KubeObjects
from pilot.ingest.cluster.start_budget import RESTRICTING
from pilot.ingest.decode import Decoded, Entry, Row
from pilot.ingest.ledger import SourceLedger
from pilot.kube.api_errors import KubeError
from pilot.kube.informer import Informer
from pilot.lib.logging.log import scope

NAME = "waiting:deny-all"
"""Name of the policy that denies everything. No object of an API server can have it."""
PAUSE = 1.0
"""Seconds before objects are read again of which the watch has not delivered the last version yet."""
_DENY_ALL = AuthorizationPolicy(action="DENY", rules=(Rule(),))
_NAMESPACE = GroupKind("", "Namespace")
_log = scope("kube")


class WatchedObjects(NamedTuple):
    """The objects of a kind, and the informer that delivers them."""

    objects: KubeObjects
    informer: Informer


class WaitingObjects:
    """Decodes waiting objects. `run` returns when none is left."""

    def __init__(self, watched: Mapping[GroupKind, WatchedObjects], ledger: SourceLedger, batch: EditSink) -> None:
        self._watched, self._ledger, self._batch = watched, ledger, batch
        self._denying: set[str] = set()
        self._reported: set[str] = set()

    def report(self) -> None:
        """Report which namespaces have waiting objects, and deny what they may restrict."""
        waiting = _namespaces(self._watched.values())
        closed = _namespaces(watched for kind, watched in self._watched.items() if kind in RESTRICTING)
        for namespace in self._reported - waiting:
            self._ledger.remove(_document(namespace))
        for namespace in waiting - self._reported:
            self._ledger.fail(_document(namespace), _problem(namespace, namespace in closed))
        for namespace in self._denying - closed:
            self._batch.put(self._ledger.drop(_row(namespace)))
        for namespace in closed - self._denying:
            self._batch.put(self._ledger.put(_row(namespace), _deny_all(namespace)))
        self._denying, self._reported = closed, waiting

    async def run(self) -> None:
        """Read and decode waiting objects: first those that may restrict access, and small namespaces."""
        while True:
            await self._read_names()
            self.report()
            if not self._reported:
                return
            for _, _, namespace, kind in sorted(self._todo(), key=lambda item: item[:3]):
                watched = self._watched.get(kind)
                if watched is not None:
                    await self._read(watched, namespace)
                    self.report()
            await asyncio.sleep(PAUSE)

    def _todo(self) -> Iterable[tuple[bool, int, str, GroupKind]]:
        for kind, watched in self._watched.items():
            for namespace, count in Counter(name.namespace for name in watched.objects.waiting).items():
                yield kind not in RESTRICTING, count, namespace, kind

    async def _read_names(self) -> None:
        for kind in sorted(self._watched, key=lambda kind: kind not in RESTRICTING):
            watched = self._watched.get(kind)
            if watched is not None:
                try:
                    await watched.informer.read_names()
                except KubeError as error:
                    _log.warning("cannot read the names of waiting objects: %s", error)

    async def _read(self, watched: WatchedObjects, namespace: str) -> None:
        try:
            async for changes in watched.informer.read_namespace(namespace):
                await watched.objects.receive_waiting(changes)
        except KubeError as error:
            _log.warning("cannot read the waiting objects of namespace %s: %s", namespace, error)


def _namespaces(watched: Iterable[WatchedObjects]) -> set[str]:
    """Return the namespaces with objects that wait, or that the lists have left out."""
    return {
        namespace
        for objects, informer in watched
        for namespace in (*(name.namespace for name in objects.waiting), *informer.unread)
    }


def _document(namespace: str) -> str:
    return f"waiting objects of namespace {namespace}"


def _row(namespace: str) -> Row:
    return AUTHORIZATION_POLICY.table_name, ObjectKey(namespace, NAME)


def _deny_all(namespace: str) -> Decoded:
    policy = Object(AUTHORIZATION_POLICY.id, namespace, NAME, _DENY_ALL)
    return Decoded((Entry(*_row(namespace), policy),))


def _problem(namespace: str, is_closed: bool) -> Problem:
    denied = "; its workloads deny all traffic until its policies are checked" if is_closed else ""
    text = f"objects of this namespace are checked later, because checking them delays the start too much{denied}"
    return msgspec.structs.replace(warning("checked-later", "", text), object=ObjectRef(_NAMESPACE, "", namespace))
