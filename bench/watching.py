"""What it costs to be watched: CPU of a control plane with its page open and Prometheus scraping every five seconds, and without.

    python bench/watching.py [S2 S3] [--rounds 3] [--seconds 60] [--edits 1.0]

S2 are 1,000 services that 500 proxies see all of, S3 as many of which each of 1,000 proxies sees its namespace's. In every round the same
control plane serves first without and then with somebody who watches, or the other way round; in each part configuration is edited
`--edits` times a second. The page is stood in for by what it asks: its events, and the mesh after each change. It prints the CPU of both,
their medians and the difference; the exit status is 1 where that is more than three percent.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from tests.support.fleet import envoy_node
from tests.support.processes import ControlPlane
from tests.support.world import proxy

SCRAPE_SECONDS, PICTURE_SECONDS = 5.0, 3.0
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
TYPES = tuple(f"type.googleapis.com/envoy.config.{name}" for name in ("cluster.v3.Cluster", "listener.v3.Listener"))
Plain = dict[str, Any]


class Shape(NamedTuple):
    """A mesh. `scoped`: a Sidecar in each namespace shows its proxies that namespace alone."""

    namespaces: int
    services: int
    endpoints: int
    proxies: int
    scoped: bool = False


SHAPES = {"S0": Shape(2, 5, 2, 5), "S2": Shape(20, 50, 2, 500), "S3": Shape(50, 20, 2, 1000, scoped=True)}


def write_mesh(folder: pathlib.Path, shape: Shape) -> None:
    for n in range(shape.namespaces):
        found: list[Plain] = []
        if shape.scoped:
            found.append(made("Sidecar", "default", f"ns-{n}", {"egress": [{"hosts": ["./*"]}]}))
        for s in range(shape.services):
            endpoints = [{"address": f"10.{128 + e}.{n}.{s + 1}"} for e in range(shape.endpoints)]
            ports = [{"name": "http", "number": 80, "protocol": "HTTP"}]
            spec = {"hosts": [f"s{s}.ns-{n}.example"], "resolution": "STATIC", "ports": ports, "endpoints": endpoints}
            found.append(made("ServiceEntry", f"s{s}", f"ns-{n}", spec))
        (folder / f"ns-{n}.yaml").write_text("\n---\n".join(map(json.dumps, found)))


def made(kind: str, name: str, namespace: str, spec: Plain) -> Plain:
    return {"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def edit(folder: pathlib.Path, number: int, shape: Shape) -> None:
    """Changes the limit of one service."""
    spec = {"host": "s0.ns-0.example", "trafficPolicy": {"connectionPool": {"tcp": {"maxConnections": 10 + number}}}}
    temporary = folder.parent / "rule.new"
    temporary.write_text(json.dumps(made("DestinationRule", "rule", "ns-0", spec)))
    temporary.replace(folder / "rule.yaml")


async def stand_in(address: str, number: int, shape: Shape) -> None:
    """Keeps the stream of one proxy open, and acknowledges whatever comes, until it is cancelled."""
    namespace = f"ns-{number % shape.namespaces}"
    node = envoy_node(proxy("sidecar", f"web-{number}", namespace, f"10.2.{number // 250}.{number % 250 + 1}"))
    request = discovery_pb2.DiscoveryRequest
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        while True:
            call = channel.stream_stream(ADS, request.SerializeToString, discovery_pb2.DiscoveryResponse.FromString)()
            with contextlib.suppress(grpc.RpcError):
                for url in TYPES:
                    await call.write(request(node=node, type_url=url))
                while (response := await call.read()) is not grpc.aio.EOF:
                    await call.write(request(type_url=response.type_url, response_nonce=response.nonce, version_info=response.version_info))


def cpu_of(pid: int) -> float:
    """Returns the seconds of CPU that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def scrape(session: aiohttp.ClientSession, base: str) -> None:
    while True:
        async with session.get(f"{base}/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
            await answer.read()
        await asyncio.sleep(SCRAPE_SECONDS)


async def open_page(session: aiohttp.ClientSession, base: str) -> None:
    """Reads the events of the page, and asks for the mesh after each change, not more often than the page does."""
    due = 0.0
    async with session.get(f"{base}/debug/dashboard/events", timeout=aiohttp.ClientTimeout(total=None)) as events:
        async for line in events.content:
            if line.startswith(b"data:") and b'"revision"' in line and time.monotonic() >= due:
                due = time.monotonic() + PICTURE_SECONDS
                async with session.get(f"{base}/debug/dashboard/mesh") as answer:
                    await answer.read()


@contextlib.asynccontextmanager
async def watching(base: str) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(read_bufsize=1 << 24) as session:
        tasks = [asyncio.create_task(work(session, base)) for work in (scrape, open_page)]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()  # raises where nobody was watching
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def part(plane: ControlPlane, folder: pathlib.Path, shape: Shape, options: argparse.Namespace, watched: bool, first: int) -> float:
    """Returns the CPU of some seconds of edits."""
    base = f"http://127.0.0.1:{plane.ports['monitoringAddr']}"
    async with watching(base) if watched else contextlib.nullcontext():
        await asyncio.sleep(5)
        before = cpu_of(plane.child.pid)
        for number in range(round(options.seconds * options.edits)):
            edit(folder, first + number, shape)
            await asyncio.sleep(1 / options.edits)
        return cpu_of(plane.child.pid) - before


async def measure(name: str, options: argparse.Namespace) -> float:
    """Returns by how much being watched costs more, as a share."""
    shape = SHAPES[name]
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "config"
        folder.mkdir()
        write_mesh(folder, shape)
        plane = ControlPlane(pathlib.Path(work), folder)
        await asyncio.to_thread(plane.wait_ready)
        fleet = [asyncio.create_task(stand_in(plane.xds, number, shape)) for number in range(shape.proxies)]
        try:
            while json.loads(await asyncio.to_thread(plane.get, "/debug/connections"))["totalClients"] < shape.proxies:
                await asyncio.sleep(1)
            await asyncio.sleep(options.settle)
            found: dict[bool, list[float]] = {False: [], True: []}
            for number in range(options.rounds):
                for watched in (False, True) if number % 2 == 0 else (True, False):
                    first = 100_000 * (2 * number + watched)
                    found[watched].append(await part(plane, folder, shape, options, watched, first))
                print(f"{name} round {number + 1}: {found[False][-1]:.2f} s alone, {found[True][-1]:.2f} s watched", flush=True)
        finally:
            for task in fleet:
                task.cancel()
            await asyncio.gather(*fleet, return_exceptions=True)
            await asyncio.to_thread(plane.stop)
    alone, watched_for = (statistics.median(found[watched]) for watched in (False, True))
    print(f"{name}: {alone:.2f} s of CPU alone, {watched_for:.2f} s watched: {100 * (watched_for / alone - 1):+.1f} %", flush=True)
    return watched_for / alone - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=["S2", "S3"], choices=SHAPES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--settle", type=float, default=10, help="seconds before the first round")
    parser.add_argument("--edits", type=float, default=1.0, help="in a second")
    options = parser.parse_args()
    return int(max([asyncio.run(measure(name, options)) for name in options.shapes]) > 0.03)


if __name__ == "__main__":
    sys.exit(main())
