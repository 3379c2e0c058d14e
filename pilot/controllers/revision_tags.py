"""Whose an object is where several revisions of the control plane share a cluster: by its label, that of its namespace, and the tags.

A tag is a webhook configuration, or a Service in the own namespace, with the labels `istio.io/tag` and `istio.io/rev`. What names no revision
is that of the tag `default`, else of the revision that the default validating webhook names.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pilot.kube.client import ApiClient
from pilot.kube.informer import Informer, Receive, WatchedCollection, WatchOptions
from pilot.kube.wire import NamespacedName, ObjectChange
from pilot.lib.tasks import cancel_tasks

REVISION, TAG = "istio.io/rev", "istio.io/tag"
DEFAULT = "default"
DEFAULT_VALIDATOR = "istiod-default-validator"
_BASE = "/apis/admissionregistration.k8s.io/v1"
Labels = Mapping[str, str]


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class RevisionTags:
    """Follows the tags. `on_change` is called when objects may be another revision's now; `start` and `stop` once."""

    def __init__(
        self, client: ApiClient, revision: str, namespace: str, pace: WatchOptions, choose: random.Random
    ) -> None:
        self.revision = revision or DEFAULT
        self.on_change: list[Callable[[], None]] = []
        self._tags: dict[tuple[str, NamespacedName], Labels] = {}
        places = (
            ("tags", WatchedCollection(f"{_BASE}/mutatingwebhookconfigurations", TAG, metadata_only=True)),
            ("services", WatchedCollection(f"/api/v1/namespaces/{namespace}/services", TAG, metadata_only=True)),
            (
                "default",
                WatchedCollection(
                    f"{_BASE}/validatingwebhookconfigurations",
                    fields=f"metadata.name={DEFAULT_VALIDATOR}",
                    metadata_only=True,
                ),
            ),
        )
        self._followers = [Informer(client, where, self._receiver(what), pace, choose) for what, where in places]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begins to follow."""
        self._tasks = [
            asyncio.create_task(follower.run(), name="follow tags of revisions") for follower in self._followers
        ]

    async def stop(self) -> None:
        """Follows nothing any more."""
        await cancel_tasks(*self._tasks)

    async def synced(self) -> None:
        """Returns when all tags are known that there were at the start."""
        for follower in self._followers:
            await follower.synced.wait()

    def is_ours(self, labels: Labels, namespace: Labels | None) -> bool:
        """Returns whether an object is this revision's; `namespace` has the labels of its namespace, None where that is not known."""
        named = labels.get(REVISION)
        if named is None and namespace is None:
            return True
        said = named if named is not None else (namespace or {}).get(REVISION, "")
        mine = self._mine()
        return said in mine or (not said and (DEFAULT in mine or self._is_default()))

    def _mine(self) -> frozenset[str]:
        tagged = (at for (what, _), at in self._tags.items() if what != "default" and at.get(REVISION) == self.revision)
        return frozenset((self.revision, *(at.get(TAG, "") for at in tagged))) - {""}

    def _is_default(self) -> bool:
        """Returns whether what names no revision is ours although no tag says so."""
        taken = any(what == "tags" and at.get(TAG) == DEFAULT for (what, _), at in self._tags.items())
        return not taken and any(
            what == "default" and at.get(REVISION) == self.revision for (what, _), at in self._tags.items()
        )

    def _receiver(self, what: str) -> Receive:
        async def receive(changes: Sequence[ObjectChange]) -> None:
            before = dict(self._tags)
            for change in changes:
                if change.raw is None:
                    self._tags.pop((what, change.name), None)
                else:
                    self._tags[what, change.name] = (
                        msgspec.json.decode(change.raw, type=_Labelled).metadata.labels or {}
                    )
            if self._tags != before:
                for told in self.on_change:
                    told()

        return receive
