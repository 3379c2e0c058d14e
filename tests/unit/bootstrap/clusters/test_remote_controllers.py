"""Controllers of remote clusters that name this control plane."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pilot.bootstrap.clusters.remote_controllers import ClusterControllers, RemoteControllers
from pilot.kube.api_errors import KubeError, NotFound


class RemoteCluster:
    """A remote cluster with an annotated system namespace, and a record of its controllers."""

    def __init__(self, *responses: Any, has_bundles: bool = True) -> None:
        self.responses, self.requests, self.lines, self.waits = list(responses), list[str](), list[str](), 0
        self.has_bundles, self.authority = has_bundles, asyncio.Event()
        roots: Any = SimpleNamespace(resync=lambda: self.lines.append("roots changed"))
        webhooks: Any = SimpleNamespace(
            resync=lambda: self.lines.append("bundles changed"), run=lambda: self._run("bundles")
        )
        controllers = ClusterControllers(roots, webhooks if has_bundles else None)
        self.remote = RemoteControllers(
            "east",
            "mesh",
            lambda client: controllers,
            lambda client, roots: self._run("lead"),
            self.authority,
            lambda: self,  # type: ignore[return-value]
        )

    def next_delay(self) -> float:
        self.waits += 1
        return 0.0

    async def _run(self, line: str) -> None:
        self.lines.append(line)
        try:
            await asyncio.Event().wait()
        finally:
            self.lines.append(f"end of {line}")

    async def call(self, method: str, path: str) -> bytes:
        self.requests.append(f"{method} {path}")
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return msgspec.json.encode({"metadata": {"annotations": response} if response is not None else {}})

    async def begin(self) -> asyncio.Task[None]:
        client: Any = self
        task = asyncio.create_task(self.remote.run("west", client))
        for _ in range(8):
            await asyncio.sleep(0)
        return task


CONTROL_PLANES = "topology.istio.io/controlPlaneClusters"


@pytest.mark.parametrize(
    ("response", "is_written"),
    [
        ({CONTROL_PLANES: "east"}, True),
        ({CONTROL_PLANES: "a,east"}, True),
        ({CONTROL_PLANES: "*"}, True),
        ({CONTROL_PLANES: "eastern"}, False),
        ({}, False),
        (None, False),
        (NotFound(404, "NotFound", ""), False),
    ],
)
async def test_annotated_cluster_is_written_to(
    response: Any, is_written: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    cluster = RemoteCluster(response)
    cluster.authority.set()
    task = await cluster.begin()
    assert cluster.requests == ["GET /api/v1/namespaces/mesh"]
    assert cluster.lines == (["lead", "bundles"] if is_written else [])
    assert caplog.messages == (["cluster west: writing root certificates"] if is_written else [])
    assert task.done() is not is_written
    task.cancel()
    await asyncio.wait((task,))
    assert sorted(cluster.lines[2:]) == (["end of bundles", "end of lead"] if is_written else [])


async def test_remote_writes_wait_for_roots_and_follow_changes() -> None:
    cluster = RemoteCluster({CONTROL_PLANES: "*"})
    task = await cluster.begin()
    cluster.remote.resync()
    assert cluster.lines == []
    cluster.authority.set()
    for _ in range(5):
        await asyncio.sleep(0)
    cluster.remote.resync()
    assert cluster.lines == ["lead", "bundles", "roots changed", "bundles changed"]
    task.cancel()
    await asyncio.wait((task,))
    cluster.lines.clear()
    cluster.remote.resync()
    assert cluster.lines == []


async def test_only_roots_are_written_without_remote_webhooks() -> None:
    cluster = RemoteCluster({CONTROL_PLANES: "*"}, has_bundles=False)
    cluster.authority.set()
    task = await cluster.begin()
    cluster.remote.resync()
    assert cluster.lines == ["lead", "roots changed"]
    task.cancel()
    await asyncio.wait((task,))


async def test_unreachable_cluster_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    cluster = RemoteCluster(KubeError("503 busy"), KubeError("503 busy"), {})
    task = await cluster.begin()
    await task
    assert (len(cluster.requests), cluster.waits) == (3, 2)
    assert caplog.messages == ["cluster west: cannot read namespace mesh: 503 busy"] * 2
