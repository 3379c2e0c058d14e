#!/usr/bin/env python3
"""Measure how much hostile objects that are stored in the cluster delay a restart.

    python bench/hostile_restart.py [--objects 24000] [--services 2000] [--repeats 3] [--binaries FOLDER]

The API servers of the tests run in this process, the control plane in a separate one. With --binaries, real API
servers run instead, from the kube-apiserver and etcd in a folder. They need several minutes to store all objects. The
control plane starts in turn with ordinary services, and with the same services and hostile objects in one namespace.
The output has the seconds and CPU seconds until it is ready, the seconds until every hostile object is a problem, and
the peak memory. The exit status is 1 if it is ready more than 10 % later, or if a hostile object is no problem with a
path.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench.kube_start import Process
from bench.shadow import write_definitions
from testing.kube.kube_access import server_with_crds, write_kubeconfig
from testing.kube.real_mesh import RealMesh
from testing.kube.real_server import RealApiServer

NAMESPACE, NAMESPACES, MOST_DELAY = "hostile", 20, 1.1
MOST_SECONDS = 600
Plain = dict[str, Any]
Write = Callable[[Iterable[Plain]], Awaitable[None]]


def make(group: str, kind: str, namespace: str, name: str, spec: Any) -> Plain:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": "2025-01-01T00:00:00Z"}
    return {"apiVersion": f"{group}.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def honest_objects(services: int) -> Iterator[Plain]:
    for n in range(services):
        host, namespace = f"s{n}.example.com", f"ns-{n % NAMESPACES}"
        ports = [{"number": 80, "name": "http", "protocol": "HTTP"}]
        entry = {"hosts": [host], "ports": ports, "resolution": "STATIC", "endpoints": [{"address": "192.0.2.1"}]}
        yield make("networking", "ServiceEntry", namespace, f"s{n}", entry)
        route = {"hosts": [host], "http": [{"timeout": "3s", "route": [{"destination": {"host": host}}]}]}
        yield make("networking", "VirtualService", namespace, f"s{n}", route)


def _entry(_: int) -> Plain:
    hosts = [f"h{n}.example.com" for n in range(100)]
    ports = [{"number": n + 1, "name": f"p{n}", "protocol": "HTTP"} for n in range(100)]
    return make("networking", "ServiceEntry", "", "", {"hosts": hosts, "ports": ports, "resolution": "DNS"})


def _routes(n: int) -> Plain:
    pattern = rf"(?i)[\pL]{{300}}{n}"
    match = [{"uri": {"regex": pattern}, "headers": {"x": {"regex": pattern}}}]
    headers = {"request": {"set": {"x": "%A(" * 200}}}
    route = {"match": match, "headers": headers, "route": [{"destination": {"host": "a"}}]}
    return make("networking", "VirtualService", "", "", {"hosts": ["a"], "http": [route]})


def _policy(_: int) -> Plain:
    sources = [{"source": {"principals": [f"p{n}"]}} for n in range(300)]
    conditions = [{"key": f"request.headers[x-{n}]", "values": ["a"]} for n in range(300)]
    return make("security", "AuthorizationPolicy", "", "", {"rules": [{"from": sources, "when": conditions}]})


def _sidecar(_: int) -> Plain:
    egress = [{"port": {"number": n + 1, "protocol": "HTTP", "name": f"p{n}"}, "hosts": ["*/*"]} for n in range(129)]
    return make("networking", "Sidecar", "", "", {"workloadSelector": {"labels": {"a": "b"}}, "egress": egress})


def _filter(_: int) -> Plain:
    patch = {"operation": "MERGE", "value": {f"unknown{n}": n for n in range(100)}}
    return make("networking", "EnvoyFilter", "", "", {"configPatches": [{"applyTo": "CLUSTER", "patch": patch}]}) | {
        "apiVersion": "networking.istio.io/v1alpha3"
    }


KINDS: tuple[Callable[[int], Plain], ...] = (_entry, _routes, _policy, _sidecar, _filter)


def hostile_objects(count: int) -> Iterator[Plain]:
    for n in range(count):
        plain = KINDS[n % len(KINDS)](n)
        plain["metadata"] |= {"name": f"o{n}", "namespace": NAMESPACE}
        yield plain


class Start(NamedTuple):
    """The seconds and CPU seconds until the control plane was ready, the seconds until all problems were reported, and
    the peak memory in MB."""

    ready: float
    cpu: float
    reported: float
    memory: int

    def __str__(self) -> str:
        return (
            f"ready after {self.ready:.1f} s and {self.cpu:.1f} CPU seconds, all reported after {self.reported:.1f} s, "
            f"{self.memory} MB"
        )


def problems(port: int) -> set[str]:
    """Return the names of the hostile objects that have a problem with a path."""
    url = f"http://127.0.0.1:{port}/debug/problemz?namespace={NAMESPACE}"
    try:
        with urllib.request.urlopen(url) as response:
            return {row["name"] for row in json.load(response) if row.get("path")}
    except urllib.error.HTTPError as fault:
        if fault.code != HTTPStatus.NOT_FOUND:
            raise
        return set()  # the namespace has no objects yet


async def start(kubeconfig: pathlib.Path, hostile: int) -> Start:
    process = Process(kubeconfig, None)
    began = time.monotonic()
    await process.start()
    try:
        ready, cpu = time.monotonic() - began, process.cpu()
        while (count := len(await asyncio.to_thread(problems, process.http))) < hostile:
            if time.monotonic() - began > MOST_SECONDS:
                print(f"{hostile - count} hostile objects are no problem with a path")
                return Start(ready, cpu, float("inf"), process.memory("VmHWM"))
            await asyncio.sleep(1)
        return Start(ready, cpu, time.monotonic() - began, process.memory("VmHWM"))
    finally:
        await process.stop()


@contextlib.asynccontextmanager
async def api_server(binaries: pathlib.Path | None, folder: pathlib.Path) -> AsyncIterator[tuple[pathlib.Path, Write]]:
    """Yield the kubeconfig of a running API server, and a function that stores objects in it."""
    if binaries is None:
        async with server_with_crds() as server:

            async def put(plains: Iterable[Plain]) -> None:
                for plain in plains:
                    server.put(plain)

            yield write_kubeconfig(server, folder / "config"), put
        return
    async with contextlib.AsyncExitStack() as closing:
        real_server = RealApiServer(binaries, folder)
        closing.callback(real_server.stop)
        await asyncio.to_thread(real_server.wait_ready)
        await write_definitions(real_server, [])
        kubeconfig = real_server.kubeconfig()
        mesh = RealMesh(str(kubeconfig))
        closing.push_async_callback(mesh.close)
        names = (NAMESPACE, *(f"ns-{n}" for n in range(NAMESPACES)))
        await mesh.write({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names)
        yield kubeconfig, mesh.write


async def run(options: argparse.Namespace) -> int:
    starts: dict[int, list[Start]] = {0: [], options.objects: []}
    async with contextlib.AsyncExitStack() as closing:
        kubeconfigs = {}
        for hostile in starts:
            folder = pathlib.Path(closing.enter_context(tempfile.TemporaryDirectory()))
            kubeconfigs[hostile], write = await closing.enter_async_context(api_server(options.binaries, folder))
            await write(honest_objects(options.services))
            await write(hostile_objects(hostile))
        for _ in range(options.repeats):
            for hostile, kubeconfig in kubeconfigs.items():
                starts[hostile].append(await start(kubeconfig, hostile))
                print(f"with {hostile} hostile objects: {starts[hostile][-1]}", flush=True)
    without, after = map(min, starts.values())
    print(f"ready {after.ready / without.ready - 1:+.0%}, after {without.ready:.1f} and {after.ready:.1f} s")
    return int(after.ready > without.ready * MOST_DELAY or after.reported == float("inf"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=24_000, help="hostile objects")
    parser.add_argument("--services", type=int, default=2000, help="ordinary services, with a VirtualService each")
    parser.add_argument("--repeats", type=int, default=3, help="starts of each kind; the fastest ones are compared")
    parser.add_argument("--binaries", type=pathlib.Path, help="folder with kube-apiserver and etcd")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
