"""Random changes over several replicas, whose delivery is awaited and compared with what the proxies have acknowledged.

Proxies disconnect and reconnect to other replicas, read slowly, and reject responses. A delivery is reported falsely if
a proxy that was connected at the time of the report has not acknowledged the change.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import pathlib
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.rollout import Failure, Target, wait_until_delivered
from pilot.ingest.analysis import read_objects
from pilot.ingest.fingerprint import fingerprint
from pilot.mesh.model.proxy import NodeType, Proxy
from testing.clients.fleet import RDS, ProxyClient
from testing.processes.process import ControlPlane

_MARK = re.compile(rb"mark-(\d+)-(\d+)\.")
SERVICE = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: s{0}, namespace: shop}}
spec: {{hosts: [s{0}.example.com], resolution: NONE, ports: [{{number: 80, name: http, protocol: HTTP}}]}}
"""
ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: s{0}, namespace: shop}}
spec:
  hosts: [s{0}.example.com]
  http:
  - headers: {{request: {{set: {{x-mark: mark-{0}-{1}.}}}}}}
    route: [{{destination: {{host: s{0}.example.com}}}}]
"""


@dataclasses.dataclass
class Options:
    """The size of a trial, and the probabilities of faults per change (drops) and response (slow reads, NACKs)."""

    changes: int = 10_000
    workers: int = 4
    replicas: int = 3
    proxies: int = 24
    drops: float = 0.2
    slow: float = 0.05
    nacks: float = 0.01
    timeout: float = 30.0
    seed: int = 1


@dataclasses.dataclass
class Result:
    """The number of changes by outcome, and the seconds from the last event of a proxy to the report of each delivery.

    The event is the acknowledgement of the change, the first one of another type if that is later, because a proxy is
    pending until then, or the end of the connection before it.
    """

    delivered: int = 0
    refused: int = 0
    expired: int = 0
    false: list[str] = dataclasses.field(default_factory=list)
    lags: list[float] = dataclasses.field(default_factory=list)


class Acknowledged(NamedTuple):
    """The number of the last acknowledged change of an object, and the time of its first acknowledgement."""

    number: int
    at: float


class FlakyProxy(ProxyClient):
    """A proxy that sometimes reads slowly or rejects routes. `acknowledged` has the last acknowledged change of each
    object, and `types_acked_at` the time of the first acknowledgement of each type."""

    def __init__(self, address: str, described: Any, delta: bool, options: Options, rng: random.Random) -> None:
        self.acknowledged: dict[int, Acknowledged] = {}
        self.types_acked_at: dict[str, float] = {}
        self._options, self._rng = options, rng
        super().__init__(address, described, delta)

    def has(self, worker: int, number: int) -> bool:
        """Return whether the proxy has acknowledged a change, or a later one of the same object."""
        return worker in self.acknowledged and self.acknowledged[worker].number >= number

    def delivered_at(self, worker: int) -> float:
        """Return the time since which the proxy has acknowledged the last change of an object, and each type."""
        return max(self.acknowledged[worker].at, *self.types_acked_at.values())

    async def receive(self, response: Any) -> None:
        if self._rng.random() < self._options.slow:
            await asyncio.sleep(self._rng.uniform(0.05, 0.5))
        if response.type_url == RDS and RDS in self.types_acked_at and self._rng.random() < self._options.nacks:
            await self.reject(response, "a random rejection")
            return
        await super().receive(response)

    async def _acknowledge(self, url: str) -> None:
        # Before it is sent, because the control plane may report it before this coroutine continues.
        now = time.monotonic()
        self.types_acked_at.setdefault(url, now)
        if url == RDS:
            for data in self.resources[RDS].values():
                for worker, number in _MARK.findall(data):
                    if not self.has(int(worker), int(number)):
                        self.acknowledged[int(worker)] = Acknowledged(int(number), now)
        await super()._acknowledge(url)


class Trial:
    """A trial in progress. The replicas read the same folder."""

    def __init__(self, options: Options, folder: pathlib.Path, planes: list[ControlPlane]) -> None:
        self._options, self._folder, self._planes = options, folder, planes
        self._rng = random.Random(options.seed)
        self._proxies: dict[int, FlakyProxy] = {}
        self._stopped: collections.deque[tuple[float, FlakyProxy]] = collections.deque(maxlen=options.proxies)
        self._left = options.changes
        self._threads = ThreadPoolExecutor(options.workers)
        self.result = Result()

    async def run(self) -> Result:
        """Make all changes, and return the result."""
        for slot in range(self._options.proxies):
            self._connect(slot)
        try:
            await asyncio.gather(*(self._work(worker) for worker in range(self._options.workers)))
        finally:
            self._threads.shutdown(wait=False)
            for connected in list(self._proxies.values()):
                await connected.stop()
        return self.result

    def _connect(self, slot: int) -> None:
        described = Proxy(
            type=NodeType.SIDECAR,
            id=f"p{slot}.shop",
            ips=(f"10.0.{slot // 250}.{slot % 250 + 1}",),
            dns_domain="shop.svc.cluster.local",
            namespace="shop",
        )
        address = self._rng.choice(self._planes).xds
        delta = bool(slot % 2)
        rng = random.Random(self._rng.random())
        self._proxies[slot] = FlakyProxy(address, described, delta, self._options, rng)

    async def _work(self, worker: int) -> None:
        number = 0
        while self._left > 0:
            self._left -= 1
            number += 1
            if self._rng.random() < self._options.drops:
                slot = self._rng.randrange(self._options.proxies)
                dropped = self._proxies[slot]
                self._connect(slot)
                self._stopped.append((time.monotonic(), dropped))
                await dropped.stop()
            await self._change(worker, number)

    async def _change(self, worker: int, number: int) -> None:
        text = ROUTE.format(worker, number)
        target = self._folder / f"route-{worker}.yaml"
        temporary = target.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(target)
        ((_, _, row),) = read_objects({"": text.encode()}).edits
        query = {"kind": "VirtualService", "namespace": "shop", "name": f"s{worker}", "fingerprint": fingerprint(row)}
        began: list[float] = []

        client = _TimedControlPlane(
            [PageClient(f"{plane.host}:{plane.ports['monitoringAddr']}") for plane in self._planes], began
        )

        def wait() -> float:
            """Return the time of the report. The event loop may be busy then."""
            wait_until_delivered(client, [Target(query)], self._options.timeout)
            return time.monotonic()

        try:
            reported = await asyncio.get_running_loop().run_in_executor(self._threads, wait)
        except Failure as failure:
            if failure.is_rejected:
                self.result.refused += 1
            else:
                self.result.expired += 1
            return
        except CommandError:
            self.result.expired += 1
            return
        self._check(worker, number, began[-1], reported)

    def _check(self, worker: int, number: int, began: float, reported: float) -> None:
        """Compare a reported delivery with what the proxies that had routes before the last poll had acknowledged."""
        self.result.delivered += 1
        for one in self._proxies.values():
            has_routes = not one.ended and one.types_acked_at.get(RDS, began + 1) <= began
            if has_routes and not (one.has(worker, number) and one.acknowledged[worker].at <= reported):
                self.result.false.append(f"change {number} of s{worker} at {one.name}: {one.acknowledged.get(worker)}")
        delivered = [one.delivered_at(worker) for one in self._proxies.values() if one.has(worker, number)]
        stopped = [one.delivered_at(worker) if one.has(worker, number) else at for at, one in self._stopped]
        if events := [at for at in (*delivered, *stopped) if at <= reported]:
            self.result.lags.append(reported - max(events))


class _TimedControlPlane(Replicas):
    """A control plane that records when each poll begins."""

    def __init__(self, replicas: list[PageClient], began: list[float]) -> None:
        super().__init__(replicas)
        self._began = began

    def each(self, page: str, **query: str) -> Any:
        self._began.append(time.monotonic())
        return super().each(page, **query)


async def run_trial(options: Options, folder: pathlib.Path) -> Result:
    """Run a trial in an empty folder. Each replica is a process."""
    config = folder / "config"
    config.mkdir()
    for worker in range(options.workers):
        (config / f"service-{worker}.yaml").write_text(SERVICE.format(worker))
        (config / f"route-{worker}.yaml").write_text(ROUTE.format(worker, 0))
    with contextlib.ExitStack() as stack:
        planes = []
        for number in range(options.replicas):
            work = folder / f"replica-{number}"
            work.mkdir()
            planes.append(ControlPlane(work, config))
            stack.callback(planes[-1].stop)
        for plane in planes:
            plane.wait_ready()
        return await Trial(options, config, planes).run()
