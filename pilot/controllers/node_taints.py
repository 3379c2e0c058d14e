"""Removes the taint that prevents scheduling on a node until the network plugin is ready there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from pilot.controllers.reconciler import Reconciler
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ApiError, NotFound
from pilot.kube.informer import Informer, Receive, WatchedCollection, WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange
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


class NodeTaintController:
    """Removes the taint `key` from each node on which a pod of the plugin in `namespace` is ready."""

    def __init__(self, client: ApiClient, namespace: str, key: str, options: WatchOptions, rng: random.Random) -> None:
        self._client, self._key, self._options, self._rng = client, key, options, rng
        self._pods = WatchedCollection(f"/api/v1/namespaces/{namespace}/pods", PLUGIN, "status.phase!=Failed")
        self._ready_nodes: dict[NamespacedName, str] = {}
        self._taints: dict[str, tuple[Plain, ...]] = {}
        self._reconciler: Reconciler[str] = Reconciler("taints of node", self._reconcile, options.backoff, rng)

    async def run(self) -> None:
        """Watch pods and nodes until cancelled."""
        self._ready_nodes, self._taints = {}, {}
        informers = [
            self._informer(self._pods, self._receive_pods),
            self._informer(WatchedCollection("/api/v1/nodes"), self._receive_nodes),
        ]
        tasks = [
            asyncio.create_task(informer.run(), name="watch nodes and the network plugin") for informer in informers
        ]
        try:
            await self._reconciler.run()
        finally:
            await cancel_tasks(*tasks)

    def _informer(self, collection: WatchedCollection, receive: Receive) -> Informer:
        return Informer(self._client, collection, receive, self._options, self._rng)

    async def _receive_pods(self, changes: Sequence[ObjectChange]) -> None:
        for name, raw in changes:
            self._ready_nodes.pop(name, None)
            pod = msgspec.json.decode(raw, type=_Pod) if raw is not None else _Pod()
            if pod.spec.node_name and any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions):
                self._ready_nodes[name] = pod.spec.node_name
                self._reconciler.enqueue((pod.spec.node_name,))

    async def _receive_nodes(self, changes: Sequence[ObjectChange]) -> None:
        for name, raw in changes:
            taints = msgspec.json.decode(raw, type=_Node).spec.taints if raw is not None else ()
            if any(taint.get("key") == self._key for taint in taints):
                self._taints[name.name] = taints
                self._reconciler.enqueue((name.name,))
            else:
                self._taints.pop(name.name, None)

    async def _reconcile(self, node: str) -> None:
        """Remove the taint from a node if the plugin is ready there. Raise ApiError if the API server rejects the
        change."""
        taints = self._taints.get(node)
        if taints is None or node not in self._ready_nodes.values():
            return
        other_taints = [taint for taint in taints if taint.get("key") != self._key]
        operations = [
            {"op": "test", "path": "/spec/taints", "value": taints},
            {"op": "replace", "path": "/spec/taints", "value": other_taints},
        ]
        try:
            await self._client.call(
                "PATCH", f"/api/v1/nodes/{node}", body=msgspec.json.encode(operations), content_type=JSON_PATCH
            )
        except NotFound:
            return
        except ApiError as error:
            if error.code != 422:  # the taints changed meanwhile; the informer will report it
                raise
