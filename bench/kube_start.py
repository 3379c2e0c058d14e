"""Measure start-up with an API server, and the cost and latency of events afterwards.

    python bench/kube_start.py [--services 10000] [--pods 1] [--rate 200] [--seconds 60] [--core N]

The API server of the tests runs in this process, the control plane in a separate one, on core N if given. Half of the
events are changes of Pods, half are new addresses in EndpointSlices, whose latency to a proxy is measured. Events start
once ServiceEntries have their addresses.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import pathlib
import random
import socket
import statistics
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from testing.apiserver.server import ApiServer
from testing.clients.ads import Client
from testing.kube.kube_access import write_kubeconfig
from testing.kube.kube_mesh import Servers, address
from testing.mesh.objects import at, endpoint_slice, pod

NODE = "sidecar~10.0.1.1~app-1-0.ns-1~ns-1.svc.cluster.local"
"""A proxy in a namespace without a Sidecar, which receives every service."""


class Process:
    """A control plane process."""

    def __init__(self, kubeconfig: pathlib.Path, core: int | None) -> None:
        self.port, self.http = _free_port(), _free_port()
        addresses = {
            "grpcAddr": self.port,
            "httpAddr": self.http,
            "monitoringAddr": 0,
            "secureGRPCAddr": 0,
            "httpsAddr": 0,
        }
        flags = ["--ctrlz_port=0", *(f"--{name}=127.0.0.1:{port}" for name, port in addresses.items())]
        pinning = ["taskset", "-c", str(core)] if core is not None else []
        self._command = [
            *pinning,
            sys.executable,
            "-m",
            "pilot.cli.pilot_discovery",
            "discovery",
            f"--kubeconfig={kubeconfig}",
            *flags,
        ]

    async def start(self) -> None:
        """Start the process, and wait until it is ready."""
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.DEVNULL)
        self.pid = self._process.pid
        while not await asyncio.to_thread(self._ready):
            if self._process.returncode is not None:
                raise RuntimeError(f"the control plane exited with status {self._process.returncode}")
            await asyncio.sleep(0.05)

    def _ready(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.http}/ready", timeout=2) as response,
        ):
            return bool(response.status == 200)
        return False

    async def stop(self) -> None:
        self._process.terminate()
        await self._process.wait()

    def cpu(self) -> float:
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, field: str) -> int:
        """Return megabytes of memory: VmHWM is the peak, VmRSS the current size."""
        lines = pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) // 1024


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Events:
    """Changes of objects, and their latencies to a proxy."""

    def __init__(self, server: ApiServer, services: int, rng: random.Random) -> None:
        self._server, self._services, self._rng = server, services, rng
        self._pending: dict[bytes, float] = {}
        self.lags: list[float] = []

    async def generate(self, rate: int, seconds: int) -> None:
        started = time.monotonic()
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
            service = self._rng.randrange(self._services)
            name, namespace = f"app-{service}", f"ns-{service % 20}"
            if number % 2:
                self._server.put(
                    pod(f"{name}-0", address(0, service, 0), namespace, labels=f"{{app: {name}, version: v{number}}}")
                )
                continue
            ip = f"11.{100 + number // 10_000}.{100 + number // 100 % 100}.{100 + number % 100}"  # none is a prefix of another
            self._pending[ip.encode()] = time.monotonic()
            self._server.put(endpoint_slice(name, at(ip), namespace=namespace))

    async def follow(self, client: Client) -> None:
        """Read responses, and record when addresses arrive."""
        while True:
            data: bytes = await client.call.read()
            now = time.monotonic()
            for ip in [ip for ip in self._pending if ip in data]:
                self.lags.append(now - self._pending.pop(ip))


def all_have_addresses(server: ApiServer) -> bool:
    """Return whether all ServiceEntries have addresses, which the control plane allocates once."""
    entries = server.store.collection(("networking.istio.io", "serviceentries")).objects.values()
    return all((stored.plain.get("status") or {}).get("addresses") for stored in entries)


async def run(services: int, pods: int, rate: int, seconds: int, core: int | None) -> None:
    servers = Servers(services, pods, 1, random.Random(1))
    await servers.start()
    with tempfile.TemporaryDirectory() as folder:
        process = Process(write_kubeconfig(servers.servers[0], pathlib.Path(folder) / "config"), core)
        started = time.monotonic()
        await process.start()
        print(
            f"ready after {time.monotonic() - started:.1f} s, {process.cpu():.1f} CPU-s, {process.memory('VmHWM')} MB peak",
            flush=True,
        )
        async with Client(process, node_id=NODE, NAMESPACE="ns-1") as client:
            hosts = [
                f"outbound|{port}||app-{n}.ns-{n % 20}.svc.cluster.local" for n in range(services) for port in (80, 81)
            ]
            await client.request("eds", *hosts)
            await client.call.read()
            while not all_have_addresses(servers.servers[0]):
                await asyncio.sleep(0.2)
            print(f"addresses of ServiceEntries after {time.monotonic() - started:.1f} s", flush=True)
            events = Events(servers.servers[0], services, random.Random(2))
            reader = asyncio.create_task(events.follow(client))
            cpu, memory = process.cpu(), process.memory("VmRSS")
            await events.generate(rate, seconds)
            await asyncio.sleep(2)
            reader.cancel()
            lags = sorted(events.lags)
            print(
                f"{rate} events/s for {seconds} s: {process.cpu() - cpu:.1f} CPU-s, {memory} MB before, {process.memory('VmRSS')} MB after"
            )
            print(
                f"{len(lags)} events received by the proxy: median {statistics.median(lags):.2f} s, p99 {lags[int(len(lags) * 0.99)]:.2f} s"
            )
        await process.stop()
    await servers.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("services", 10_000), ("pods", 1), ("rate", 200), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--core", type=int, help="CPU core of the control plane")
    asyncio.run(run(**vars(parser.parse_args())))
