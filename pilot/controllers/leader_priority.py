"""Priority among candidates for leadership. The rules are istiod's.

The default revision outranks all others. Within a revision, a control plane inside the cluster outranks a remote one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import msgspec

from pilot.kube.api_client import ApiClient
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.tasks import cancel_tasks

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DEFAULT_TAG = "istio-revision-tag-default"
REVISION = "istio.io/rev"
REMOTE_PREFIX = "^"
"""Prefix of the keys of control planes that run outside the cluster."""


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Configuration(msgspec.Struct):
    metadata: _Metadata


def outranks_holder(key: str, holder: str, default: str) -> bool:
    """Return whether the candidate `key` outranks the holder. `default` is the default revision, or "" if there is
    none."""
    revision, holder_revision = key.removeprefix(REMOTE_PREFIX), holder.removeprefix(REMOTE_PREFIX)
    if revision != holder_revision:
        return revision == default
    return holder.startswith(REMOTE_PREFIX) and not key.startswith(REMOTE_PREFIX)


class LeaderPriority:
    """The priority of the candidate `key`.

    The class watches the webhook configuration that defines the default revision of a cluster. `start` and `stop` it
    once.
    """

    def __init__(self, client: ApiClient, key: str, options: WatchOptions, rng: random.Random) -> None:
        self.key = key
        self._default = ""
        self._informer = Informer(
            client,
            WatchedCollection(CONFIGURATIONS, fields=f"metadata.name={DEFAULT_TAG}"),
            self._receive,
            options,
            rng,
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start watching the default revision. Until it is known, no revision is the default."""
        self._task = asyncio.create_task(self._informer.run(), name="watch the default revision")

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    def outranks(self, holder: str) -> bool:
        """Return whether this candidate outranks the holder, and therefore takes over its lock."""
        return outranks_holder(self.key, holder, self._default)

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            configuration = msgspec.json.decode(change.raw, type=_Configuration) if change.raw is not None else None
            labels = (configuration.metadata.labels or {}) if configuration is not None else {}
            self._default = labels.get(REVISION, "")
