"""Locks for leader election. A lock is a Lease, or an annotation of a ConfigMap.

Both have istiod's format, so that replicas of istiod and pyistiod can take part in the same election.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from pilot.kube.api_client import ApiClient, Throttle
from pilot.kube.api_errors import Conflict, NotFound

Plain = dict[str, Any]
LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader"
HOLDER_KEY_ANNOTATION = "leader.istio.io/holder-key"
_UNLIMITED = Throttle(0, 1)


class LeaderRecord(msgspec.Struct, rename="camel", frozen=True):
    """The leader and its term. Times are in RFC 3339 format. `holder_key` describes the holder's priority."""

    holder_identity: str = ""
    holder_key: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    leader_transitions: int = 0


class LockObject(NamedTuple):
    """A leader record and the object that contains it."""

    record: LeaderRecord
    plain: Plain

    @property
    def version(self) -> str:
        return str(self.plain["metadata"].get("resourceVersion", ""))


class LockKind(NamedTuple):
    """A kind of object that can contain a leader record. `write` modifies an object, which must have metadata."""

    api: str
    plural: str
    kind: str
    read: Callable[[Plain], LeaderRecord]
    write: Callable[[Plain, LeaderRecord], None]


class Lock:
    """An object that names the leader.

    The requests of this lock do not wait for the requests of other components, because a delay would cost the leader
    its lock.
    """

    def __init__(self, client: ApiClient, kind: LockKind, namespace: str, name: str) -> None:
        self.name = name
        self._client, self._kind, self._namespace = client, kind, namespace
        self._collection = f"{'/api' if kind.api == 'v1' else '/apis'}/{kind.api}/namespaces/{namespace}/{kind.plural}"

    async def read(self) -> LockObject | None:
        """Return the lock, or None if the object does not exist. Raise KubeError if it cannot be read."""
        try:
            return self._decode(await self._client.call("GET", f"{self._collection}/{self.name}", throttle=_UNLIMITED))
        except NotFound:
            return None

    async def write(self, record: LeaderRecord, previous: LockObject | None) -> LockObject | None:
        """Replace `previous`, or create the object if `previous` is None.

        Return the new lock, or None if another replica changed the lock first.
        """
        if previous is None:
            plain: Plain = {
                "apiVersion": self._kind.api,
                "kind": self._kind.kind,
                "metadata": {"name": self.name, "namespace": self._namespace},
            }
        else:
            plain = {**previous.plain, "metadata": {**previous.plain["metadata"]}}
        self._kind.write(plain, record)
        method, path = ("POST", self._collection) if previous is None else ("PUT", f"{self._collection}/{self.name}")
        try:
            return self._decode(
                await self._client.call(method, path, body=msgspec.json.encode(plain), throttle=_UNLIMITED)
            )
        except Conflict:
            return None

    def _decode(self, body: bytes) -> LockObject:
        plain = msgspec.json.decode(body, type=Plain)
        return LockObject(self._kind.read(plain), plain)


def _read_lease(plain: Plain) -> LeaderRecord:
    spec = plain.get("spec") or {}
    return LeaderRecord(
        spec.get("holderIdentity") or "",
        (plain["metadata"].get("annotations") or {}).get(HOLDER_KEY_ANNOTATION, ""),
        spec.get("leaseDurationSeconds") or 0,
        spec.get("acquireTime"),
        spec.get("renewTime"),
        spec.get("leaseTransitions") or 0,
    )


def _write_lease(plain: Plain, record: LeaderRecord) -> None:
    plain["spec"] = {
        **(plain.get("spec") or {}),
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": record.lease_duration_seconds,
        "acquireTime": record.acquire_time,
        "renewTime": record.renew_time,
        "leaseTransitions": record.leader_transitions,
    }
    annotations = {k: v for k, v in (plain["metadata"].get("annotations") or {}).items() if k != HOLDER_KEY_ANNOTATION}
    plain["metadata"]["annotations"] = annotations | (
        {HOLDER_KEY_ANNOTATION: record.holder_key} if record.holder_key else {}
    )


def _read_config_map(plain: Plain) -> LeaderRecord:
    text = (plain["metadata"].get("annotations") or {}).get(LEADER_ANNOTATION, "")
    try:
        return msgspec.json.decode(text, type=LeaderRecord)
    except msgspec.DecodeError:
        return LeaderRecord()  # treat an invalid record as having no holder


def _write_config_map(plain: Plain, record: LeaderRecord) -> None:
    annotations = plain["metadata"].get("annotations") or {}
    plain["metadata"]["annotations"] = {**annotations, LEADER_ANNOTATION: msgspec.json.encode(record).decode()}


LEASE = LockKind("coordination.k8s.io/v1", "leases", "Lease", _read_lease, _write_lease)
CONFIG_MAP = LockKind("v1", "configmaps", "ConfigMap", _read_config_map, _write_config_map)
