"""How long the event loop is silent while debug pages are asked for, on a mesh of ten thousand services.

    python bench/debug_page_stalls.py [words …] [--namespaces 100] [--services 100] [--proxies 50] [--repeats 3] [--limit 20] [--stacks]

The control plane runs in this process, its proxies and whoever asks for pages in another one. For each page it prints the longest time for
which nothing else had its turn while the page was answered, in milliseconds: by the clock, and as much of it as this process was at work, which
says more where the machine has other things to do; then the size of the answer and how long it took. --stacks says where the loop was when it
was silent for longer than the limit. The exit status is 1 where a page kept the loop from its work for longer than that.
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
)


IDLE = ("runners.py", "thread.py", "connection.py", "threading.py")
"""Where threads are that do nothing."""


class Gap(NamedTuple):
    """The longest silence of the loop in seconds: by the clock, and as much of it as this process was at work."""

    clock: float
    cpu: float


class Watch:
    """Looks how long the loop is silent. With `limit` a thread notes where everybody is when it has been silent for so many seconds."""

    def __init__(self, limit: float | None) -> None:
        self.stacks: collections.Counter[str] = collections.Counter()
        self._thread = threading.get_ident()
        self._last, self._limit = time.perf_counter(), limit
        if limit is not None:
            threading.Thread(target=self._note, daemon=True).start()

    async def during(self, work: Callable[[], Any]) -> tuple[Gap, Any]:
        """Return the longest silence while `work` runs in a thread, and its result."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        clock = cpu = 0.0
        self._last, last_cpu = time.perf_counter(), time.process_time()
        while not task.done():
            await asyncio.sleep(0.001)
            now, used = time.perf_counter(), time.process_time()
            silent = now - self._last
            clock, cpu, self._last, last_cpu = max(clock, silent), max(cpu, min(silent, used - last_cpu)), now, used
        return Gap(clock, cpu), task.result()

    def _note(self) -> None:
        assert self._limit is not None
        while True:
            time.sleep(0.002)
            if time.perf_counter() - self._last > self._limit:
                for thread, frame in sys._current_frames().items():
                    if thread != threading.get_ident():
                        frames = traceback.extract_stack(frame)[-6:]
                        shown = " < ".join(
                            f"{pathlib.Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames)
                        )
                        if not shown.startswith(IDLE):
                            self.stacks[f"{'loop  ' if thread == self._thread else 'thread'} {shown}"] += 1


def write_mesh(folder: pathlib.Path, namespaces: int, services: int) -> None:
    """Write services of Kubernetes with one endpoint each; every tenth has rules of users, one of which comes too late for its host."""
    for n in range(namespaces):
        found: list[Plain] = [made("v1", "Namespace", f"ns-{n}", "")]
        for s in range(services):
            found += service_objects(f"app-{s}", f"ns-{n}", f"10.96.{n}.{s + 1}", f"10.128.{n}.{s + 1}")
            if s % 10 == 0:
                found += rules(f"app-{s}", f"ns-{n}")
        (folder / f"ns-{n}.yaml").write_text("\n---\n".join(map(json.dumps, found)))


def made(api: str, kind: str, name: str, namespace: str, labels: Plain | None = None, **parts: Any) -> Plain:
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
    slice_of = {"addressType": "IPv4", "endpoints": [endpoint], "ports": [{"name": "http", "port": 8080}]}
    return [
        made("v1", "Service", name, namespace, spec=spec),
        made("v1", "Pod", f"{name}-0", namespace, {"app": name, "version": "v1"}, spec=containers, status=status),
        made("discovery.k8s.io/v1", "EndpointSlice", name, namespace, {"kubernetes.io/service-name": name}, **slice_of),
    ]


def rules(name: str, namespace: str) -> list[Plain]:
    host, network = f"{name}.{namespace}.svc.cluster.local", "networking.istio.io/v1"
    subset = [{"route": [{"destination": {"host": host, "subset": "v1"}}]}]
    callers = {
        "selector": {"matchLabels": {"app": name}},
        "rules": [{"from": [{"source": {"namespaces": [namespace]}}]}],
    }
    return [
        made(network, "VirtualService", name, namespace, spec={"hosts": [host], "http": subset}),
        made(network, "VirtualService", f"{name}-late", namespace, spec={"hosts": [host], "http": subset}),
        made(
            network,
            "DestinationRule",
            name,
            namespace,
            spec={"host": host, "subsets": [{"name": "v1", "labels": {"version": "v1"}}]},
        ),
        made("security.istio.io/v1", "AuthorizationPolicy", name, namespace, spec=callers),
    ]


def serve_clients(pipe: Connection, xds: str, monitoring: str, proxies: int, namespaces: int) -> None:
    asyncio.run(clients(pipe, xds, monitoring, proxies, namespaces))


async def clients(pipe: Connection, xds: str, monitoring: str, proxies: int, namespaces: int) -> None:
    """Connect proxies, every tenth by delta; then fetches each page that it is told, until it is told None."""
    fleet = Fleet(xds)
    try:
        for number in range(proxies):
            namespace = f"ns-{number % namespaces}"
            of = proxy(
                "sidecar",
                f"app-{number // namespaces}-0",
                namespace,
                f"10.128.{number % namespaces}.{number // namespaces + 1}",
            )
            await connect(fleet, str(number), of, delta=number % 10 == 9)
        await fleet.wait_until_idle(3.0)
        pipe.send("connected")
        while (path := await asyncio.to_thread(pipe.recv)) is not None:
            pipe.send(
                await asyncio.to_thread(follow if path.endswith("/events") else fetch, f"http://{monitoring}{path}")
            )
    finally:
        await fleet.stop()


async def connect(fleet: Fleet, slot: str, of: Proxy, delta: bool) -> None:
    """Connect a proxy and waits for its clusters; again where its stream was ended, as those of slow readers are."""
    while True:
        await fleet.connect(slot, of, delta)
        client = fleet.clients[slot]
        while not client.resources[CDS]:
            if client.ended:
                break
            await asyncio.sleep(0.05)
        else:
            return


def fetch(url: str) -> tuple[int, float]:
    """Return the size of an answer and the seconds that it took."""
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            size = len(answer.read())
    except urllib.error.HTTPError as refused:
        size = len(refused.read())
    return size, time.perf_counter() - started


def follow(url: str) -> tuple[int, float]:
    """Read a stream of events for some seconds."""
    started, size = time.perf_counter(), 0
    with urllib.request.urlopen(url, timeout=120) as answer:
        while time.perf_counter() - started < 5:
            size += len(answer.readline())
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
    """Return whether every page let others have their turn in time."""
    ports = {flag: free_port() for flag in ("grpcAddr", "httpAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")}
    async with running(folder, ports) as plane:
        pipe, theirs = multiprocessing.Pipe()
        arguments = (
            theirs,
            f"127.0.0.1:{ports['grpcAddr']}",
            f"127.0.0.1:{ports['monitoringAddr']}",
            options.proxies,
            options.namespaces,
        )
        child = multiprocessing.get_context("spawn").Process(target=serve_clients, args=arguments)
        child.start()
        theirs.close()  # so that its end is noticed
        watch = Watch(options.limit / 1000 if options.stacks else None)
        gap, _ = await watch.during(pipe.recv)
        print(f"{'connecting':90} {1000 * gap.clock:6.0f} ms, {1000 * gap.cpu:6.0f} ms of CPU", flush=True)
        watch.stacks.clear()
        good = await ask_all(options, plane, watch, pipe)
        pipe.send(None)
        await asyncio.to_thread(child.join)
    return good


async def ask_all(options: argparse.Namespace, plane: ControlPlane, watch: Watch, pipe: Connection) -> bool:
    def ask(path: str) -> Callable[[], Any]:
        def send_and_receive() -> Any:
            pipe.send(path)
            return pipe.recv()

        return send_and_receive

    quiet, _ = await watch.during(lambda: time.sleep(3))
    tell("nothing", [quiet], (0, 3.0), watch, options.limit)
    good = True
    for path in (*PAGES, "/debug/dashboard/events"):
        if options.words and not any(word in path for word in options.words):
            continue
        gaps, answer = [], (0, 0.0)
        for _ in range(options.repeats):
            gap, answer = await watch.during(ask(path))
            gaps.append(gap)
        good = tell(path, gaps, answer, watch, options.limit) and good
    if not options.words or "health" in options.words:
        gap, _ = await watch.during(look_at_health(plane))
        good = tell("look at the health of the mesh, in the background", [gap], (0, 0.0), watch, options.limit) and good
    return good


def look_at_health(plane: ControlPlane) -> Callable[[], Any]:
    loop = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(plane._health.run_checks(), loop).result()


def tell(name: str, gaps: list[Gap], answer: tuple[int, float], watch: Watch, limit: float) -> bool:
    """Print what a page cost; returns whether that is within the limit."""
    clock, cpu = (1000 * max(of) for of in zip(*gaps, strict=True))
    print(
        f"{name:90} {clock:6.1f} ms, {cpu:6.1f} ms of CPU; {answer[0] / 1e6:7.2f} MB in {answer[1]:6.2f} s", flush=True
    )
    if cpu > limit:
        for stack, count in watch.stacks.most_common(6):
            print(f"    {count:4} {stack}", flush=True)
    watch.stacks.clear()
    return cpu <= limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "words", nargs="*", help="pages whose path has one of these; health is the look in the background"
    )
    for name, default in (("namespaces", 100), ("services", 100), ("proxies", 50), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--limit", type=float, default=20, help="milliseconds")
    parser.add_argument("--stacks", action="store_true")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_SECONDS)  # as the process does
    with tempfile.TemporaryDirectory() as folder:
        write_mesh(pathlib.Path(folder), options.namespaces, options.services)
        return 0 if uvloop.run(measure(options, pathlib.Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
