"""Removal of the CNI taint from nodes with a ready plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.controllers.node_taints import NodeTaintController
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, make_rng, until, watch_options

TAINT = {"key": "cni.istio.io/not-ready", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoExecute", "value": "x"}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    client = client_of(server)
    task = asyncio.create_task(NodeTaintController(client, "cni", TAINT["key"], watch_options(), make_rng(1)).run())
    yield server
    await cancel_tasks(task)
    await client.close()
    await server.stop()


def node(name: str, *taints: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": list(taints)}}


def plugin(name: str, node: str, ready: bool, namespace: str = "cni", app: str = "istio-cni-node") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {"k8s-app": app}}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}, "status": status}


def taints(server: ApiServer, name: str) -> list[str]:
    node = server.get("", "nodes", "", name)
    assert node is not None
    return [taint["key"] for taint in node["spec"]["taints"]]


async def test_taint_is_removed_when_the_plugin_is_ready(server: ApiServer) -> None:
    for item in (
        node("a", OTHER, TAINT),
        node("b", TAINT),
        node("c", TAINT),
        plugin("p-a", "a", ready=True),
        plugin("p-b", "b", ready=False),
    ):
        server.put(item)
    server.put(plugin("p-c", "c", ready=True, namespace="other"))
    server.put(plugin("q-c", "c", ready=True, app="another"))
    await until(lambda: taints(server, "a") == ["other"])
    assert (taints(server, "b"), taints(server, "c")) == ([TAINT["key"]], [TAINT["key"]])
    server.put(plugin("p-b", "b", ready=True))
    await until(lambda: taints(server, "b") == [])
    server.put(node("d", TAINT))
    server.put(plugin("p-d", "d", ready=True))
    await until(lambda: taints(server, "d") == [])
    server.put(node("d", TAINT, OTHER))  # the node was recreated
    await until(lambda: taints(server, "d") == ["other"])
    assert taints(server, "c") == [TAINT["key"]]


async def test_failed_patch_is_retried(server: ApiServer) -> None:
    server.faults.refuse(503, times=3, matching=lambda request: request.verb == "patch")
    server.put(node("a", TAINT))
    server.put(plugin("p", "a", ready=True))
    await until(lambda: taints(server, "a") == [])
    assert server.faults.spent


async def test_unready_or_deleted_plugin_keeps_the_taint(server: ApiServer) -> None:
    deleted, unready, nowhere = (
        plugin("gone", "a", ready=True),
        plugin("unready", "b", ready=False),
        plugin("nowhere", "", ready=True),
    )
    other = plugin("other", "c", ready=True)
    other["status"]["conditions"] = [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]
    for item in (node("a", TAINT), deleted, unready, nowhere, other):
        server.put(item)
    await until(lambda: taints(server, "a") == [])
    server.delete(deleted)
    server.put(plugin("last", "z", ready=True))
    server.put(node("z", TAINT))
    await until(lambda: taints(server, "z") == [])
    for item in (node("a", TAINT), node("b", TAINT), node("c", TAINT), node("z", TAINT)):
        server.put(item)
    await until(lambda: taints(server, "z") == [])
    assert [taints(server, name) for name in ("a", "b", "c")] == [[TAINT["key"]]] * 3
    assert {request.name for request in server.requests if request.verb == "patch"} == {"a", "z"}


async def test_externally_removed_taint_is_not_patched(server: ApiServer) -> None:
    server.put(node("a", TAINT))
    server.put(node("b", TAINT))
    server.put(plugin("p-b", "b", ready=True))
    await until(lambda: taints(server, "b") == [])  # the controller has seen the nodes
    server.put(node("a"))
    server.put(node("c", TAINT))
    server.put(plugin("p-c", "c", ready=True))
    await until(lambda: taints(server, "c") == [])
    for name in ("a", "b"):
        server.put(plugin(f"p-{name}", name, ready=False))
        server.put(plugin(f"p-{name}", name, ready=True))
    server.put(node("d", TAINT))
    server.put(plugin("p-d", "d", ready=True))
    await until(lambda: taints(server, "d") == [])
    assert {request.name for request in server.requests if request.verb == "patch"} == {"b", "c", "d"}
