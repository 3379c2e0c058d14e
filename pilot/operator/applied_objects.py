"""Objects at the API server, remembered as they were applied last, so that changes that others make are told from own ones."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from pilot.kube.client import ApiClient
from pilot.kube.object_client import ObjectClient, Plain, ResourceKey, RetryPolicy, resource_key

_OF_CONTROLLER = "deployment.kubernetes.io/"
Changed = Callable[[ResourceKey, Plain | None], None]


def fingerprint(plain: Plain) -> Any:
    """Returns what of an object is something else after a change that could matter, which one of its status does not."""
    metadata = plain["metadata"]
    generation = metadata.get("generation")
    if generation is None or plain["kind"] in ("Service", "ServiceAccount"):
        return metadata.get("resourceVersion")
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(_OF_CONTROLLER)
    }
    return generation, metadata.get("labels"), annotations


class AppliedObjects(ObjectClient):
    """Objects that are remembered as they were when they were applied last, in `seen`.

    `changed` is told of an object once its application is answered, if it was seen meanwhile: the server tells of a change in no order with its
    answer. `answered_within`: seconds that are given to a server whose answer nobody wants any more.
    """

    def __init__(
        self,
        client: ApiClient,
        manager: str,
        choose: random.Random,
        retry: RetryPolicy,
        changed: Changed,
        answered_within: float = 5.0,
    ) -> None:
        super().__init__(client, manager, choose, retry=retry)
        self._changed, self._answered_within = changed, answered_within
        self._applying: Counter[ResourceKey] = Counter()
        self._held: dict[ResourceKey, Plain | None] = {}
        self.seen: dict[ResourceKey, Any] = {}

    async def apply(self, plain: Plain) -> Plain:
        """Returns what `Objects.apply` does. One that is cancelled ends with the server's answer: what is listed after that has the object, if it
        was applied."""
        applying = asyncio.create_task(self._apply(plain))
        try:
            return await asyncio.shield(applying)
        except asyncio.CancelledError:
            await asyncio.wait((applying,), timeout=self._answered_within)
            applying.cancel()
            await asyncio.gather(applying, return_exceptions=True)
            raise

    async def _apply(self, plain: Plain) -> Plain:
        key = resource_key(plain)
        self._applying[key] += 1
        try:
            found = await super().apply(plain)
            self.seen[key] = fingerprint(found)
            return found
        finally:
            self._applying[key] -= 1
            if not self._applying[key]:
                del self._applying[key]
                if key in self._held:
                    self._changed(key, self._held.pop(key))

    def hold(self, key: ResourceKey, plain: Plain | None) -> bool:
        """Takes an object as it is now, None where it is gone, if it is being applied; returns whether it is."""
        if key not in self._applying:
            return False
        self._held[key] = plain
        return True

    def is_known(self, key: ResourceKey, plain: Plain) -> bool:
        """Returns whether an object is as it was applied."""
        return key in self.seen and self.seen[key] == fingerprint(plain)
