"""Many honest proxies and frequent edits, in a process of their own. They measure how long edits take to arrive."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pathlib
import time
from multiprocessing.connection import Connection
from typing import Any

import uvloop
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.lib.event_loop import EventLoop
from pilot.mesh.model.proxy import Proxy
from testing.clients.fleet import EDS, REFERENCES, ProxyClient
from testing.hostile.objects import network
from testing.mesh.world import proxy

NAMESPACES, SERVICES = 10, 4
EDITS_PER_SECOND = 20


class HonestFleet:
    """The process of the proxies."""

    def __init__(self, address: str, folder: pathlib.Path, proxies: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, address, folder, proxies), daemon=True)
        self._process.start()
        self._pipe.recv()

    def take(self) -> list[float]:
        """Return the sorted delivery times in seconds since the last call: one for each edit and proxy."""
        self._pipe.send("take")
        times: list[float] = self._pipe.recv()
        return times

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()


def percentile(times: list[float], part: float) -> float:
    return times[min(len(times) - 1, int(len(times) * part))] if times else 0.0


def _run(pipe: Connection, address: str, folder: pathlib.Path, proxies: int) -> None:
    uvloop.run(_Proxies(pipe, address, folder, proxies).run(), loop_factory=EventLoop)


_References = dict[tuple[str, str, str], frozenset[str]]
"""The names that clusters and listeners refer to, by type URL, name and version. Proxies share them."""


class _HonestProxy(ProxyClient):
    """A proxy that records when the endpoints of its namespace's services arrive.

    It keeps no resources, because the proxies share a process that must not be slower than the control plane.
    """

    def __init__(
        self, address: str, node: Proxy, sent: dict[str, list[float]], times: list[float], references: _References
    ) -> None:
        self._sent, self._times, self._references_by_version = sent, times, references
        self._received: dict[str, int] = {}
        super().__init__(address, node, delta=True)

    async def _apply(self, response: Any) -> None:
        now, url = time.monotonic(), response.type_url
        self._nonces[url] = response.nonce
        if url == EDS:
            for resource in response.resources:
                self._record(resource, now)
        await self._acknowledge(url)
        if url in REFERENCES:
            received = {resource.name: self._references_of(url, resource) for resource in response.resources}
            await self._follow_references(url, received, response.removed_resources)

    def _references_of(self, url: str, resource: Any) -> frozenset[str]:
        key = url, resource.name, resource.version
        names = self._references_by_version.get(key)
        if names is None:
            names = self._references_by_version[key] = REFERENCES[url][1](resource.resource.value)
        return names

    def _record(self, resource: Any, now: float) -> None:
        host = resource.name.rpartition("|")[2]
        if (sent := self._sent.get(host)) is None:
            return
        message = endpoint_pb2.ClusterLoadAssignment.FromString(resource.resource.value)
        for group in message.endpoints:
            for endpoint in group.lb_endpoints:
                text = endpoint.endpoint.address.socket_address.address
                _, a, b, c = map(int, text.split("."))
                edits = (a << 16) + (b << 8) + c
                previous = self._received.get(host)
                if previous is not None:
                    self._times += [now - sent[number] for number in range(previous + 1, edits + 1)]
                self._received[host] = edits


class _Proxies:
    def __init__(self, pipe: Connection, address: str, folder: pathlib.Path, proxies: int) -> None:
        self._pipe, self._address, self._folder, self._count = pipe, address, folder, proxies
        self._hosts = [(f"s{s}.f{n}.example.org", f"f{n}") for s in range(SERVICES) for n in range(NAMESPACES)]
        self._sent: dict[str, list[float]] = {host: [] for host, _ in self._hosts}
        self._times: list[float] = []
        self._references_by_version: _References = {}

    async def run(self) -> None:
        for host, namespace in self._hosts:
            self._edit(host, namespace)
        await asyncio.sleep(3)
        clients = []
        for number in range(self._count):
            node = proxy("sidecar", f"p{number}", f"f{number % NAMESPACES}", f"10.7.{number >> 8}.{number & 255}")
            clients.append(_HonestProxy(self._address, node, self._sent, self._times, self._references_by_version))
            await asyncio.sleep(0.005)
        while not all(len(client._received) == SERVICES for client in clients):
            await asyncio.sleep(0.1)
        self._pipe.send("ready")
        editing = asyncio.create_task(self._keep_editing())
        while True:
            await asyncio.to_thread(self._pipe.recv)
            if editing.done():
                editing.result()
            ended = sum(client.ended for client in clients)
            assert not ended, f"{ended} proxies were disconnected"
            times, self._times[:] = sorted(self._times), []
            self._pipe.send(times)

    async def _keep_editing(self) -> None:
        started, number = time.monotonic(), 0
        while True:
            self._edit(*self._hosts[number % len(self._hosts)])
            number += 1
            await asyncio.sleep(max(0.0, started + number / EDITS_PER_SECOND - time.monotonic()))

    def _edit(self, host: str, namespace: str) -> None:
        """Change the address of a service. It contains the number of the edit."""
        number = len(self._sent[host])
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        spec = {
            "hosts": [host],
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
            "resolution": "STATIC",
            "endpoints": [{"address": address}],
            "exportTo": ["."],
        }
        plain = network("ServiceEntry", spec)
        plain["metadata"].update(name=host, namespace=namespace)
        fresh = self._folder / f"{host}.new"
        fresh.write_text(json.dumps(plain))
        self._sent[host].append(time.monotonic())
        os.replace(fresh, self._folder / f"{host}.yaml")
