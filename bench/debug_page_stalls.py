"""Measure how long debug pages block the event loop, in a mesh of ten thousand services.

    python bench/debug_page_stalls.py [words …] [--namespaces 100] [--services 100] [--proxies 50] [--repeats 3]
                                      [--limit 20] [--stacks]

The control plane runs in this process, its proxies and the HTTP client in another one. For each page, the output has
the longest time in milliseconds during which no other task ran while the page was served, as wall-clock time and as CPU
time of this process, which is more reliable on busy machines; then the size and the duration of the response. --stacks
prints stack samples of stalls beyond the limit. The exit status is 1 if a page exceeds the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import multiprocessing
import pathlib
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import uvloop

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pilot.bootstrap import ControlPlane
from pilot.bootstrap.control_plane import SWITCH_SECONDS
from pilot.mesh.model.proxy import Proxy
from pilot.settings.parse import load
from testing.clients.fleet import CDS, Fleet
from testing.mesh.world import proxy
from testing.processes.process import free_port

Plain = dict[str, Any]
PROXY = "app-0-0.ns-0"
PAGES = (
    "/metrics",
    "/debug",
    "/debug/syncz",
    "/debug/adsz",
    "/debug/connections",
    f"/debug/config_dump?proxyID={PROXY}",
    f"/debug/config_dump?proxyID={PROXY}&include_eds",
    f"/debug/config_dump?proxyID={PROXY}&types=eds",
    f"/debug/edsz?proxyID={PROXY}",
    f"/debug/ecdsz?proxyID={PROXY}",
    f"/debug/ndsz?proxyID={PROXY}",
    f"/debug/sidecarz?proxyID={PROXY}",
    f"/debug/describe?proxyID={PROXY}",
    f"/debug/authz?proxyID={PROXY}",
    f"/debug/explain?proxyID={PROXY}&resource=outbound|80||app-1.ns-1.svc.cluster.local",
    f"/debug/explain?proxyID={PROXY}&resource=80",
    f"/debug/explain?proxyID={PROXY}&resource=nothing",
    "/debug/problemz",
    "/debug/configz",
    "/debug/configz?pretty",
    "/debug/resourcesz",
    "/debug/authorizationz",
    "/debug/telemetryz",
    "/debug/mesh",
    "/debug/inject",
    "/debug/push_status",
    "/debug/pushcontext",
    "/debug/registryz",
    "/debug/registryz?pretty",
    "/debug/endpointShardz",
    "/debug/instancesz",
    "/debug/networkz",
    "/debug/clusterz",
    "/debug/cachez",
    "/debug/cachez?sizes=true",
    "/debug/krtz",
    "/debug/list",
    "/debug/dashboard/mesh",
    "/debug/dashboard/mesh?namespace=ns-1",
    "/debug/dashboard/search?text=app",
    "/debug/dashboard/service?namespace=ns-1&host=app-0.ns-1.svc.cluster.local",
    "/debug/dashboard/object?group=networking.istio.io&kind=VirtualService&namespace=ns-1&name=app-0",
    "/debug/dashboard/proxies?text=web",
)


IDLE = ("runners.py", "thread.py", "connection.py", "threading.py")
"""Files at the top of the stacks of idle threads."""


class Stall(NamedTuple):
    """The longest stall of the loop in seconds: wall-clock time and CPU time of this process."""

    clock: float
    cpu: float


class StallMonitor:
    """Measures stalls of the event loop.

    With `limit`, a thread samples the stacks of all threads during longer stalls.
    """

    def __init__(self, limit: float | None) -> None:
        self.stacks: collections.Counter[str] = collections.Counter()
        self._thread = threading.get_ident()
        self._last, self._limit = time.perf_counter(), limit
        if limit is not None:
            threading.Thread(target=self._sample_stacks, daemon=True).start()

    async def measure(self, work: Callable[[], Any]) -> tuple[Stall, Any]:
        """Run `work` in a thread, and return the longest stall meanwhile and its result."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        clock = cpu = 0.0
        self._last, last_cpu = time.perf_counter(), time.process_time()
        while not task.done():
            await asyncio.sleep(0.001)
            now, used = time.perf_counter(), time.process_time()
            pause = now - self._last
            clock, cpu, self._last, last_cpu = max(clock, pause), max(cpu, min(pause, used - last_cpu)), now, used
        return Stall(clock, cpu), task.result()

    def _sample_stacks(self) -> None:
        assert self._limit is not None
        while True:
            time.sleep(0.002)
            if time.perf_counter() - self._last > self._limit:
                for thread, frame in sys._current_frames().items():
                    if thread != threading.get_ident():
                        frames = traceback.extract_stack(frame)[-6:]
                        stack = " < ".join(
                            f"{pathlib.Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames)
                        )
                        if not stack.startswith(IDLE):
                            self.stacks[f"{'loop  ' if thread == self._thread else 'thread'} {stack}"] += 1


def write_mesh(folder: pathlib.Path, namespaces: int, services: int) -> None:
    """Write Kubernetes services with one endpoint each. Every tenth has rules, including a duplicate VirtualService."""
    for n in range(namespaces):
        objects: list[Plain] = [make_object("v1", "Namespace", f"ns-{n}", "")]
        for s in range(services):
            objects += service_objects(f"app-{s}", f"ns-{n}", f"10.96.{n}.{s + 1}", f"10.128.{n}.{s + 1}")
            if s % 10 == 0:
                objects += rules(f"app-{s}", f"ns-{n}")
        (folder / f"ns-{n}.yaml").write_text("\n---\n".join(map(json.dumps, objects)))


def make_object(api: str, kind: str, name: str, namespace: str, labels: Plain | None = None, **parts: Any) -> Plain:
    """Return an object."""
    metadata = {
        "name": name,
        "labels": labels or {},
        "creationTimestamp": "2025-01-01T00:00:00Z",
        **({"namespace": namespace} if namespace else {}),
    }
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}


def service_objects(name: str, namespace: str, service: str, address: str) -> list[Plain]:
    spec = {
        "clusterIP": service,
        "clusterIPs": [service],
        "selector": {"app": name},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
    }
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    containers = {"serviceAccountName": name, "containers": [{"name": "app", "image": "app"}]}
    endpoint = {"addresses": [address], "targetRef": {"kind": "Pod", "name": f"{name}-0", "namespace": namespace}}
    slice_fields = {"addressType": "IPv4", "endpoints": [endpoint], "ports": [{"name": "http", "port": 8080}]}
    return [
        make_object("v1", "Service", name, namespace, spec=spec),
        make_object(
            "v1", "Pod", f"{name}-0", namespace, {"app": name, "version": "v1"}, spec=containers, status=status
        ),
        make_object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            name,
            namespace,
            {"kubernetes.io/service-name": name},
            **slice_fields,
        ),
    ]


def rules(name: str, namespace: str) -> list[Plain]:
    host, network = f"{name}.{namespace}.svc.cluster.local", "networking.istio.io/v1"
    routes = [{"route": [{"destination": {"host": host, "subset": "v1"}}]}]
    policy = {
        "selector": {"matchLabels": {"app": name}},
        "rules": [{"from": [{"source": {"namespaces": [namespace]}}]}],
    }
    return [
        make_object(network, "VirtualService", name, namespace, spec={"hosts": [host], "http": routes}),
        make_object(network, "VirtualService", f"{name}-late", namespace, spec={"hosts": [host], "http": routes}),
        make_object(
            network,
            "DestinationRule",
            name,
            namespace,
            spec={"host": host, "subsets": [{"name": "v1", "labels": {"version": "v1"}}]},
        ),
        make_object("security.istio.io/v1", "AuthorizationPolicy", name, namespace, spec=policy),
    ]


def serve_clients(pipe: Connection, xds: str, monitoring: str, proxies: int, namespaces: int) -> None:
    asyncio.run(clients(pipe, xds, monitoring, proxies, namespaces))


async def clients(pipe: Connection, xds: str, monitoring: str, proxies: int, namespaces: int) -> None:
    """Connect proxies, every tenth with delta xDS. Then fetch each requested page until None is received."""
    fleet = Fleet(xds)
    try:
        for number in range(proxies):
            namespace = f"ns-{number % namespaces}"
            node = proxy(
                "sidecar",
                f"app-{number // namespaces}-0",
                namespace,
                f"10.128.{number % namespaces}.{number // namespaces + 1}",
            )
            await connect(fleet, str(number), node, delta=number % 10 == 9)
        await fleet.wait_until_idle(3.0)
        pipe.send("connected")
        while (path := await asyncio.to_thread(pipe.recv)) is not None:
            pipe.send(
                await asyncio.to_thread(follow if path.endswith("/events") else fetch, f"http://{monitoring}{path}")
            )
    finally:
        await fleet.stop()


async def connect(fleet: Fleet, slot: str, node: Proxy, delta: bool) -> None:
    """Connect a proxy, and wait for its clusters. Reconnect if the stream is ended, as happens to slow readers."""
    while True:
        await fleet.connect(slot, node, delta)
        client = fleet.clients[slot]
        while not client.resources[CDS]:
            if client.ended:
                break
            await asyncio.sleep(0.05)
        else:
            return


def fetch(url: str) -> tuple[int, float]:
    """Return the size of a response and the time in seconds."""
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(url, timeout=120) as response:
            size = len(response.read())
    except urllib.error.HTTPError as error:
        size = len(error.read())
    return size, time.perf_counter() - started


def follow(url: str) -> tuple[int, float]:
    """Read an event stream for some seconds. Return its size and the time."""
    started, size = time.perf_counter(), 0
    with urllib.request.urlopen(url, timeout=120) as response:
        while time.perf_counter() - started < 5:
            size += len(response.readline())
    return size, time.perf_counter() - started


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path, ports: dict[str, int]) -> AsyncIterator[ControlPlane]:
    flags = [f"--{name}=127.0.0.1:{port}" for name, port in ports.items()]
    plane = ControlPlane(
        load(["--ctrlz_port=0", "--log_output_level=default:error", f"--configDir={folder}", *flags], {}).settings
    )
    task = asyncio.create_task(plane.run())
    while not plane.ready and not task.done():
        await asyncio.sleep(0.05)
    try:
        yield plane
    finally:
        plane.end()
        await task


async def measure(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Return whether every page stayed within the limit."""
    ports = {flag: free_port() for flag in ("grpcAddr", "httpAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")}
    async with running(folder, ports) as plane:
        pipe, remote = multiprocessing.Pipe()
        arguments = (
            remote,
            f"127.0.0.1:{ports['grpcAddr']}",
            f"127.0.0.1:{ports['monitoringAddr']}",
            options.proxies,
            options.namespaces,
        )
        child = multiprocessing.get_context("spawn").Process(target=serve_clients, args=arguments)
        child.start()
        remote.close()  # so that the end of the child is noticed
        monitor = StallMonitor(options.limit / 1000 if options.stacks else None)
        stall, _ = await monitor.measure(pipe.recv)
        print(f"{'proxies connect':90} {1000 * stall.clock:6.0f} ms, {1000 * stall.cpu:6.0f} ms of CPU", flush=True)
        monitor.stacks.clear()
        is_within_limit = await measure_pages(options, plane, monitor, pipe)
        pipe.send(None)
        await asyncio.to_thread(child.join)
    return is_within_limit


async def measure_pages(
    options: argparse.Namespace, plane: ControlPlane, monitor: StallMonitor, pipe: Connection
) -> bool:
    def request_page(path: str) -> Callable[[], Any]:
        def send_and_receive() -> Any:
            pipe.send(path)
            return pipe.recv()

        return send_and_receive

    idle, _ = await monitor.measure(lambda: time.sleep(3))
    report("idle", [idle], (0, 3.0), monitor, options.limit)
    is_within_limit = True
    for path in (*PAGES, "/debug/dashboard/events"):
        if options.words and not any(word in path for word in options.words):
            continue
        stalls, response = [], (0, 0.0)
        for _ in range(options.repeats):
            stall, response = await monitor.measure(request_page(path))
            stalls.append(stall)
        is_within_limit = report(path, stalls, response, monitor, options.limit) and is_within_limit
    if not options.words or "health" in options.words:
        stall, _ = await monitor.measure(check_health(plane))
        is_within_limit = (
            report("health checks in the background", [stall], (0, 0.0), monitor, options.limit) and is_within_limit
        )
    return is_within_limit


def check_health(plane: ControlPlane) -> Callable[[], Any]:
    loop = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(plane._health.run_checks(), loop).result()


def report(name: str, stalls: list[Stall], response: tuple[int, float], monitor: StallMonitor, limit: float) -> bool:
    """Print the stalls of a page. Return whether they are within the limit."""
    clock, cpu = (1000 * max(values) for values in zip(*stalls, strict=True))
    print(
        f"{name:90} {clock:6.1f} ms, {cpu:6.1f} ms of CPU; {response[0] / 1e6:7.2f} MB in {response[1]:6.2f} s",
        flush=True,
    )
    if cpu > limit:
        for stack, count in monitor.stacks.most_common(6):
            print(f"    {count:4} {stack}", flush=True)
    monitor.stacks.clear()
    return cpu <= limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "words", nargs="*", help="parts of page paths, or `health` for the health checks in the background"
    )
    for name, default in (("namespaces", 100), ("services", 100), ("proxies", 50), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--limit", type=float, default=20, help="maximum stall in milliseconds (default 20)")
    parser.add_argument("--stacks", action="store_true", help="print stack samples of longer stalls")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_SECONDS)  # as the process does
    with tempfile.TemporaryDirectory() as folder:
        write_mesh(pathlib.Path(folder), options.namespaces, options.services)
        return 0 if uvloop.run(measure(options, pathlib.Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
