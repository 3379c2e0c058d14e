"""The kubelet of all nodes: runs the pods that are bound to one."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

from pilot.kube.list_watch import NamespacedName
from tests.cluster.box.objects import Api
from tests.cluster.box.pod import PodRunner
from tests.cluster.box.pod_network import PodNetwork

Plain = dict[str, Any]


class Kubelet:
    """Runs pods. `runners` has them by UID."""

    def __init__(self, api: Api, folder: pathlib.Path) -> None:
        self._api, self._folder, self._network = api, folder, PodNetwork()
        self.runners: dict[str, PodRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.failures: list[str] = []

    async def start(self) -> None:
        await self._api.watch("/api/v1/pods", self._on_change, "spec.nodeName!=")

    def find(self, namespace: str, prefix: str) -> list[PodRunner]:
        """Return the pods of a namespace whose names have a prefix, and that are not to end."""
        pods = ((runner.pod["metadata"], runner) for runner in self.runners.values())
        alive = (pod for pod in pods if pod[0]["namespace"] == namespace and "deletionTimestamp" not in pod[0])
        return [runner for metadata, runner in alive if metadata["name"].startswith(prefix)]

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _on_change(self, name: NamespacedName, pod: Plain | None) -> None:
        if pod is None:
            for runner in self.runners.values():  # removed by force
                if (runner.pod["metadata"]["namespace"], runner.pod["metadata"]["name"]) == name:
                    runner.update({**runner.pod, "metadata": {**runner.pod["metadata"], "deletionTimestamp": "now"}})
            return
        uid = pod["metadata"]["uid"]
        if uid in self.runners:
            self.runners[uid].update(pod)
            return
        runner = PodRunner(self._api, self._network, pod, self._folder / uid)
        self.runners[uid] = runner
        runner.update(pod)
        self._tasks[uid] = asyncio.create_task(self._run(uid, runner))

    async def _run(self, uid: str, runner: PodRunner) -> None:
        try:
            await runner.run()
        except Exception as error:  # a fault of the box, which must be seen
            self.failures.append(f"{runner.pod['metadata']['name']}: {error!r}")
        finally:
            self.runners.pop(uid, None)
            self._tasks.pop(uid, None)
