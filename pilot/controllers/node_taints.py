"""The taint that keeps pods from nodes on which the network plugin is not ready yet, which goes when it is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from pilot.controllers.reconciler import Upkeep
from pilot.kube.client import ApiClient
from pilot.kube.errors import ApiError, NotFound
from pilot.kube.informer import Informer, Receive, WatchedCollection, WatchOptions
from pilot.kube.wire import NamespacedName, ObjectChange
from pilot.lib.tasks import cancel_tasks

JSON_PATCH = "application/json-patch+json"
PLUGIN = "k8s-app=istio-cni-node"
Plain = dict[str, Any]


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _PodStatus(msgspec.Struct):
    conditions: tuple[_Condition, ...] = ()


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _NodeSpec(msgspec.Struct):
    taints: tuple[Plain, ...] = ()


class _Node(msgspec.Struct):
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)


class NodeTaints:
    """Takes the taint `key` from each node with a ready pod of the plugin in `namespace`, while it runs."""

    def __init__(self, client: ApiClient, namespace: str, key: str, pace: WatchOptions, choose: random.Random) -> None:
        self._client, self._key, self._pace, self._choose = client, key, pace, choose
        self._pods = WatchedCollection(f"/api/v1/namespaces/{namespace}/pods", PLUGIN, "status.phase!=Failed")
        self._ready: dict[NamespacedName, str] = {}
        self._taints: dict[str, tuple[Plain, ...]] = {}
        self._upkeep: Upkeep[str] = Upkeep("taints of node", self._settle, pace.backoff, choose)

    async def run(self) -> None:
        """Follows pods and nodes until it is cancelled."""
        self._ready, self._taints = {}, {}
        followers = [
            self._follow(self._pods, self._receive_pods),
            self._follow(WatchedCollection("/api/v1/nodes"), self._receive_nodes),
        ]
        tasks = [
            asyncio.create_task(follower.run(), name="follow nodes and the network plugin") for follower in followers
        ]
        try:
            await self._upkeep.run()
        finally:
            await cancel_tasks(*tasks)

    def _follow(self, collection: WatchedCollection, receive: Receive) -> Informer:
        return Informer(self._client, collection, receive, self._pace, self._choose)

    async def _receive_pods(self, changes: Sequence[ObjectChange]) -> None:
        for name, raw in changes:
            self._ready.pop(name, None)
            pod = msgspec.json.decode(raw, type=_Pod) if raw is not None else _Pod()
            if pod.spec.node_name and any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions):
                self._ready[name] = pod.spec.node_name
                self._upkeep.look_at((pod.spec.node_name,))

    async def _receive_nodes(self, changes: Sequence[ObjectChange]) -> None:
        for name, raw in changes:
            taints = msgspec.json.decode(raw, type=_Node).spec.taints if raw is not None else ()
            if any(taint.get("key") == self._key for taint in taints):
                self._taints[name.name] = taints
                self._upkeep.look_at((name.name,))
            else:
                self._taints.pop(name.name, None)

    async def _settle(self, node: str) -> None:
        """Takes the taint from a node, where the plugin is ready on it. ApiError where that cannot be."""
        taints = self._taints.get(node)
        if taints is None or node not in self._ready.values():
            return
        left = [taint for taint in taints if taint.get("key") != self._key]
        operations = [
            {"op": "test", "path": "/spec/taints", "value": taints},
            {"op": "replace", "path": "/spec/taints", "value": left},
        ]
        try:
            await self._client.call(
                "PATCH", f"/api/v1/nodes/{node}", body=msgspec.json.encode(operations), content_type=JSON_PATCH
            )
        except NotFound:
            return
        except ApiError as error:
            if error.code != 422:  # the taints have changed meanwhile, which is told of too
                raise
