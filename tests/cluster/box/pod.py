"""Runs one pod from its first container to its removal."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import shutil
from collections.abc import Coroutine, Sequence
from typing import Any

from pilot.kube.api_errors import KubeError
from testing.processes.netns import Host
from tests.cluster.box.addresses import NODE
from tests.cluster.box.container import Container, Sandbox, now
from tests.cluster.box.images import ImageNotFound
from tests.cluster.box.objects import Api
from tests.cluster.box.pod_network import PodNetwork
from tests.cluster.box.probes import probe_until_ended, run_handler
from tests.cluster.box.unsupported import Unsupported, check_pod
from tests.cluster.box.values import MissingReference
from tests.cluster.box.volumes import REFRESH_SECONDS, Volumes

Plain = dict[str, Any]
BACKOFF = (0.5, 1.0, 2.0, 5.0, 10.0)
HOOK_SECONDS = 30.0


class PodRunner:
    """One pod. `run` ends when the pod is removed from the API server."""

    def __init__(self, api: Api, network: PodNetwork, pod: Plain, folder: pathlib.Path) -> None:
        self.pod, self._api, self._network, self._folder = pod, api, network, folder
        self.host: Host | None = None
        self.address, self.phase, self.reason = "", "Pending", ""
        self.init: list[Container] = []
        self.main: list[Container] = []
        self._stopping, self._changed = asyncio.Event(), asyncio.Event()
        self._background: set[asyncio.Task[Any]] = set()
        self._supervisors: dict[str, asyncio.Task[None]] = {}
        self._started_at = now()

    @property
    def containers(self) -> list[Container]:
        return [*self.init, *self.main]

    def update(self, pod: Plain) -> None:
        """Take over a new version of the pod, which may be one to end."""
        self.pod = pod
        if hasattr(self, "_volumes"):
            self._volumes.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._stopping.set()

    async def run(self) -> None:
        """Run the containers until the pod is deleted, and remove it."""
        report = asyncio.create_task(self._report())
        work = asyncio.create_task(self._work())
        await self._stopping.wait()
        work.cancel()
        (failure,) = await asyncio.gather(work, return_exceptions=True)
        await self._end()
        report.cancel()
        for container in self.containers:
            container.cgroup.remove()
        if self.host is not None:
            await self._network.detach(self.host)
        await self._until_reached(self._api.remove_pod(self.pod))
        shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(failure, Exception):
            raise failure

    async def _work(self) -> None:
        try:
            check_pod(self.pod)
            await self._run_containers()
        except Unsupported as error:
            self.phase, self.reason = "Failed", str(error)
        except Exception as error:  # a fault of the box: the pod's status says so
            self.phase, self.reason = "Failed", f"the box failed: {error!r}"
            raise
        finally:
            self._changed.set()

    async def _run_containers(self) -> None:
        self.host, self.address = await self._network.attach()
        for sysctl in (self.pod["spec"].get("securityContext") or {}).get("sysctls") or ():
            await asyncio.to_thread(self.host.run, _setter(sysctl["name"], sysctl["value"]))
        self._volumes = Volumes(self._api, self.pod, self._folder / "volumes", self.address)
        await self._until_possible(None, self._volumes.write)
        self._spawn(self._refresh())
        network = f"/proc/{self.host.pid}/ns/net"
        sandbox = Sandbox(self.pod, self._folder / "containers", self.address, network, self._volumes)
        spec = self.pod["spec"]
        self.init = [Container(sandbox, plain, True) for plain in spec.get("initContainers") or ()]
        self.main = [Container(sandbox, plain, False) for plain in spec["containers"]]
        self._changed.set()
        for container in self.init:
            if container.is_sidecar:
                self._supervise(container)
                while not container.started:
                    await asyncio.sleep(0.05)
            else:
                await self._run_to_completion(container)
                if self.phase == "Failed":
                    return
        self.phase = "Running"
        for container in self.main:
            self._supervise(container)
            if "postStart" in (container.plain.get("lifecycle") or {}):
                while not container.started and "terminated" not in container.state:  # it blocks the next container
                    await asyncio.sleep(0.05)
        await asyncio.gather(*(self._supervisors[container.name] for container in self.main))
        for container in reversed(self.init):
            await self._stop(container, 5.0)
        codes = [container.state["terminated"]["exitCode"] for container in self.main]
        self.phase = "Failed" if any(codes) else "Succeeded"

    async def _run_to_completion(self, container: Container) -> None:
        for delay in (*BACKOFF, *[BACKOFF[-1]] * 1000):
            await self._until_possible(container, container.start)
            self._changed.set()
            code = await container.wait()
            container.ready = code == 0
            self._changed.set()
            if code == 0:
                return
            if self.pod["spec"].get("restartPolicy") == "Never":
                self.phase = "Failed"
                self._changed.set()
                return
            self._restarting(container)
            await asyncio.sleep(delay)

    def _supervise(self, container: Container) -> None:
        self._supervisors[container.name] = self._spawn(self._keep_running(container))

    async def _keep_running(self, container: Container) -> None:
        """Run a container, and restart it according to the policy."""
        policy = "Always" if container.is_sidecar else self.pod["spec"].get("restartPolicy", "Always")
        for delay in (*BACKOFF, *[BACKOFF[-1]] * 100_000):
            await self._until_possible(container, container.start)
            self._changed.set()
            probes = self._spawn(self._probe(container))
            code = await container.wait()
            probes.cancel()
            self._changed.set()
            if self._stopping.is_set() or policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            self._restarting(container)
            await asyncio.sleep(delay)

    def _restarting(self, container: Container) -> None:
        container.last, container.restarts = container.state, container.restarts + 1
        container.state = {"waiting": {"reason": "CrashLoopBackOff", "message": container.tail()}}
        self._changed.set()

    async def _probe(self, container: Container) -> None:
        lifecycle = container.plain.get("lifecycle") or {}
        hook = lifecycle.get("postStart")
        if hook and not await run_handler(container, hook, self.address, HOOK_SECONDS):
            await container.stop(self._grace)
            return

        def restart() -> None:
            self._spawn(container.stop(self._grace))

        await probe_until_ended(container, self.address, self._changed.set, restart)

    async def _until_possible(self, container: Container | None, work: Any) -> None:
        """Repeat until all objects and images that it needs exist. The pod's status says what is missing."""
        while True:
            try:
                await work()
            except (MissingReference, ImageNotFound, ValueError, KubeError) as error:
                reason = "ErrImagePull" if isinstance(error, ImageNotFound) else "CreateContainerConfigError"
                if container is not None:
                    container.state = {"waiting": {"reason": reason, "message": str(error)}}
                else:
                    self.reason = str(error)
                self._changed.set()
                await asyncio.sleep(0.5)
            else:
                self.reason = ""
                return

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            with contextlib.suppress(MissingReference, KubeError):
                await self._volumes.write()

    @property
    def _grace(self) -> float:
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        return float(metadata.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30)))

    async def _end(self) -> None:
        """End all containers: first the main ones, then sidecars in reverse order."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        ended = (self._stop(container, deadline - loop.time()) for container in self.main)
        await asyncio.gather(*ended)
        for container in reversed(self.init):
            await self._stop(container, deadline - loop.time())
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _stop(self, container: Container, grace: float) -> None:
        hook = (container.plain.get("lifecycle") or {}).get("preStop")
        if "running" in container.state:
            loop = asyncio.get_running_loop()
            start = loop.time()
            if hook and grace > 0:
                await run_handler(container, hook, self.address, grace)
            await container.stop(grace - (loop.time() - start))
        if (task := self._supervisors.get(container.name)) is not None and self._stopping.is_set():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _report(self) -> None:
        """Write the status whenever it changes."""
        written: Plain = {}
        while True:
            status = self._status()
            if status != written:
                await self._until_reached(self._api.set_pod_status(self.pod, status))
                written = status
            await self._changed.wait()
            await asyncio.sleep(0.02)
            self._changed.clear()

    async def _until_reached(self, request: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(KubeError):  # the next change repeats it
            await request

    def _status(self) -> Plain:
        ready = (
            bool(self.main) and all(c.ready for c in self.main) and all(c.started for c in self.init if c.is_sidecar)
        )
        initialized = self.phase != "Pending"
        status: Plain = {
            "phase": self.phase,
            "hostIP": NODE,
            "startTime": self._started_at,
            "conditions": [
                _condition("PodReadyToStartContainers", bool(self.address)),
                _condition("Initialized", initialized),
                _condition("ContainersReady", ready),
                _condition("Ready", ready),
            ],
            "initContainerStatuses": _statuses(self.init),
            "containerStatuses": _statuses(self.main),
        }
        if self.address:
            status |= {"podIP": self.address, "podIPs": [{"ip": self.address}], "hostIPs": [{"ip": NODE}]}
        return status | {"message": self.reason or None}

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _setter(name: str, value: str) -> Any:
    path = pathlib.Path("/proc/sys") / name.replace(".", "/")
    return lambda: path.write_text(value)


def _condition(name: str, value: bool) -> Plain:
    return {"type": name, "status": "True" if value else "False"}


def _statuses(containers: Sequence[Container]) -> list[Plain]:
    return [
        {
            "name": container.name,
            "image": container.plain["image"],
            "imageID": container.plain["image"],
            "state": container.state,
            "lastState": container.last,
            "restartCount": container.restarts,
            "ready": container.ready,
            "started": container.started,
        }
        for container in containers
    ]
