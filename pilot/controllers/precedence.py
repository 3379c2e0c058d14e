"""Which of the candidates for a lock has more right to lead than its holder, as istiod has it: the default revision before all others, and of
one revision a control plane in the cluster before one outside of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import msgspec

from pilot.kube.client import ApiClient
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.wire import ObjectChange
from pilot.lib.tasks import cancel_tasks

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DEFAULT_TAG = "istio-revision-tag-default"
REVISION = "istio.io/rev"
OUTSIDE = "^"
"""What the key of a control plane outside of the cluster begins with."""


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Configuration(msgspec.Struct):
    metadata: _Metadata


def has_precedence(key: str, holder: str, default: str) -> bool:
    """Returns whether who has this key leads in place of a holder. `default` is the default revision, "" where there is none."""
    own, other = key.removeprefix(OUTSIDE), holder.removeprefix(OUTSIDE)
    if own != other:
        return own == default
    return holder.startswith(OUTSIDE) and not key.startswith(OUTSIDE)


class Precedence:
    """What a candidate with `key` may take from others. It follows the webhook configuration by which a cluster says what its default
    revision is; `start` and `stop` once."""

    def __init__(self, client: ApiClient, key: str, pace: WatchOptions, choose: random.Random) -> None:
        self.key = key
        self._default = ""
        self._follower = Informer(
            client,
            WatchedCollection(CONFIGURATIONS, fields=f"metadata.name={DEFAULT_TAG}"),
            self._receive,
            pace,
            choose,
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to follow the default revision; until it is known there is none."""
        self._task = asyncio.create_task(self._follower.run(), name="follow the default revision")

    async def stop(self) -> None:
        """Follows it no more."""
        await cancel_tasks(self._task)

    def outranks(self, holder: str) -> bool:
        """Returns whether a lock is to be taken from a holder with this key."""
        return has_precedence(self.key, holder, self._default)

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            found = msgspec.json.decode(change.raw, type=_Configuration) if change.raw is not None else None
            self._default = ((found.metadata.labels or {}) if found is not None else {}).get(REVISION, "")
