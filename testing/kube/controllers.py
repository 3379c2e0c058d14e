"""Cluster controllers: they establish CustomResourceDefinitions, and bring up workloads or leave them unready."""

from __future__ import annotations

from collections.abc import Callable

from testing.apiserver.resource import CRDS
from testing.apiserver.server import ApiServer
from testing.apiserver.store import Event, Plain

_WORKLOADS = (("apps", "deployments"), ("apps", "daemonsets"))


def always_ready(_: Plain) -> bool:
    return True


class Controllers:
    """Sets the status of a server's objects as soon as they change.

    `ready` returns whether a workload becomes ready.
    """

    def __init__(self, server: ApiServer, ready: Callable[[Plain], bool] = always_ready) -> None:
        self._store, self.ready = server.store, ready
        server.store.on_change.append(self._changed)

    def recheck(self) -> None:
        """Sets the status of all workloads: what is ready may be something else now."""
        for resource in _WORKLOADS:
            for stored in list(self._store.collection(resource).objects.values()):
                self._set(resource, stored.plain, self._status(stored.plain))

    def _changed(self, resource: tuple[str, str], event: Event) -> None:
        if event.after is None:
            return
        if resource == CRDS:
            self._set(resource, event.after.plain, {"conditions": [{"type": "Established", "status": "True"}]})
        elif resource in _WORKLOADS:
            self._set(resource, event.after.plain, self._status(event.after.plain))

    def _status(self, plain: Plain) -> Plain:
        ready = (plain["spec"].get("replicas", 1)) if self.ready(plain) else 0
        counts = (
            {"updatedReplicas": ready, "readyReplicas": ready}
            if plain["kind"] == "Deployment"
            else {"desiredNumberScheduled": 1, "updatedNumberScheduled": ready, "numberReady": ready}
        )
        return {"observedGeneration": plain["metadata"].get("generation", 1), **counts}

    def _set(self, resource: tuple[str, str], plain: Plain, status: Plain) -> None:
        if plain.get("status") != status:
            self._store.put(resource, {**plain, "status": status})
