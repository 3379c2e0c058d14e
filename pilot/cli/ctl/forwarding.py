"""Port forwards to Pods of a cluster, which last until the command ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster

if TYPE_CHECKING:
    from pilot.kube.port_forward import PortForward

Result = TypeVar("Result")


class Forwarding:
    """Forwards local ports to Pods, on an event loop in a thread of its own. Call `close` at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._forwards = AsyncExitStack()
        self._client = cluster.open_client()

    def open(self, namespace: str, pod: str, port: int) -> PortForward:
        """Return a local port that leads to a port of a Pod."""
        from pilot.kube.port_forward import PortForward  # imports aiohttp, as in Cluster

        return self._run(self._forwards.enter_async_context(PortForward(self._client, namespace, pod, port)))

    def close(self) -> None:
        """Close all ports and connections."""
        # The coroutine is created on the loop: one of this thread might never be awaited after a second Ctrl-C.
        self._loop.call_soon_threadsafe(self._start_close)
        self._thread.join()
        self._loop.close()

    def _start_close(self) -> None:
        closing = self._loop.create_task(self._close())
        closing.add_done_callback(lambda _: self._loop.stop())

    async def _close(self) -> None:
        await self._forwards.aclose()
        await self._client.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def forward(ctx: click.Context, cluster: Cluster) -> Forwarding:
    """Return port forwards that are closed when the command ends."""
    forwarding = Forwarding(cluster)
    ctx.call_on_close(forwarding.close)
    return forwarding


def find_pods(cluster: Cluster, namespace: str, selector: str) -> list[dict[str, Any]]:
    """Return the running Pods of a namespace that a label selector selects, sorted by name. Raise CommandError if the
    API server is unreachable or returns an error."""
    from pilot.kube.object_client import VersionedKind

    pods = cluster.run(lambda objects, _: objects.list(VersionedKind("v1", "Pod"), selector, namespace))
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running" and not _is_ending(pod)]
    return sorted(running, key=lambda pod: str(pod["metadata"]["name"]))


def find_pod(cluster: Cluster, namespace: str, selector: str) -> dict[str, Any]:
    """Return the first running Pod that a label selector selects. Raise CommandError if there is none."""
    pods = find_pods(cluster, namespace, selector)
    if not pods:
        raise CommandError(f"no running Pod in the namespace {namespace} has the labels {selector}")
    return pods[0]


def _is_ending(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]
