#!/usr/bin/env python3
"""Measure how long healthy proxies wait while other clients do not read.

    python bench/slow_readers.py [--stuck 100,1000] [--services 1500] [--peers many|one|both]

A server with a generated mesh is started. Streams subscribe to clusters and never read, each from a different loopback
address (many) or all from the address of the healthy proxies (one). The output has the time in seconds until healthy
proxies have all clusters: those that connect while the slow ones arrive, those that connect afterwards, and connected
ones after a change. Memory is the resident set of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import h2.config
import h2.connection
from envoy.service.discovery.v3 import discovery_pb2

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


def service(number: int, port: int = 80) -> str:
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: svc-{number}, namespace: ns-{number % 10}}}\n"
        f"spec: {{clusterIP: 10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}, ports: [{{name: http, port: {port}}}]}}\n---\n"
    )


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Server:
    """A control plane with `services` services."""

    def __init__(self, folder: pathlib.Path, services: int) -> None:
        self.folder = folder
        (folder / "services.yaml").write_text("".join(service(number) for number in range(services)))
        self.port, http = free_port(), free_port()
        command = shutil.which("pilot-discovery", path=str(pathlib.Path(sys.executable).parent)) or "pilot-discovery"
        arguments = [
            command,
            "discovery",
            "--configDir",
            str(folder),
            "--grpcAddr",
            f"127.0.0.1:{self.port}",
            "--httpAddr",
            f"127.0.0.1:{http}",
        ]
        unused = ("--monitoringAddr", "", "--secureGRPCAddr", "", "--httpsAddr", "")
        self.process = subprocess.Popen([*arguments, *unused, "--log_output_level", "default:error"])
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{http}/ready", timeout=1):
                return
            time.sleep(0.05)

    def change(self) -> None:
        (self.folder / "more.yaml").write_text(service(0xFFFF, port=1 + int(time.monotonic() * 1000) % 60_000))

    @property
    def megabytes(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()


def request(number: int, kind: str) -> Any:
    message = discovery_pb2.DiscoveryRequest(type_url=CLUSTER)
    message.node.id = f"sidecar~10.9.{number >> 8}.{number & 255}~{kind}-{number}.ns-1~ns-1.svc.cluster.local"
    message.node.metadata.update({"NAMESPACE": "ns-1", "CLUSTER_ID": "Kubernetes"})
    return message


def open_stuck(port: int, number: int, address: str) -> socket.socket:
    """Open a stream that subscribes to clusters, on a connection that is never read."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    connection.send_headers(1, list(headers.items()))
    body = request(number, "stuck").SerializeToString()
    connection.send_data(1, b"\0" + len(body).to_bytes(4, "big") + body)
    stream = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
    stream.sendall(connection.data_to_send())
    return stream


class Healthy:
    """A proxy that acknowledges every response."""

    def __init__(self, port: int, number: int) -> None:
        self.number = number
        channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL)
        self.channel = channel
        self.call = self.channel.stream_stream(METHOD)()

    async def connect(self) -> float:
        """Connect, and return the seconds until clusters arrive."""
        started = time.monotonic()
        await self.call.write(request(self.number, "healthy").SerializeToString())
        return await self.receive() - started

    async def receive(self) -> float:
        """Acknowledge the next response, and return the time of its arrival."""
        response = discovery_pb2.DiscoveryResponse.FromString(await self.call.read())
        arrival = time.monotonic()
        await self.call.write(
            discovery_pb2.DiscoveryRequest(type_url=CLUSTER, response_nonce=response.nonce).SerializeToString()
        )
        return arrival

    async def close(self) -> None:
        self.call.cancel()
        await self.channel.close()


async def connection_times(port: int, first: int, count: int) -> list[float]:
    """Return the seconds that new proxies wait, one after the other."""
    waits = []
    for number in range(first, first + count):
        proxy = Healthy(port, number)
        waits.append(await asyncio.wait_for(proxy.connect(), 300))
        await proxy.close()
    return waits


async def push_times(server: Server, proxies: list[Healthy], count: int) -> list[float]:
    """Return the seconds from a change of a file to its arrival at each proxy."""
    waits = []
    for _ in range(count):
        started = time.monotonic()
        server.change()
        waits += [
            arrival - started
            for arrival in await asyncio.wait_for(asyncio.gather(*(proxy.receive() for proxy in proxies)), 300)
        ]
        await asyncio.sleep(0.3)
    return waits


def show(title: str, seconds: list[float]) -> None:
    print(f"    {title:42} median {statistics.median(seconds):6.3f}  longest {max(seconds):6.3f}", flush=True)


async def measure(server: Server, stuck: int, peers: str) -> None:
    print(
        f"{stuck} streams that do not read, {'from different addresses' if peers == 'many' else 'from the address of the healthy proxies'}"
    )
    healthy = [Healthy(server.port, number) for number in range(5)]
    for proxy in healthy:
        await proxy.connect()
    show("change, before", await push_times(server, healthy, 3))
    highest = server.megabytes
    sockets: list[socket.socket] = []
    addresses: Iterator[str] = (f"127.1.{n >> 8}.{n & 255}" if peers == "many" else "127.0.0.1" for n in range(stuck))

    async def arrive() -> None:
        for number, address in enumerate(addresses):
            sockets.append(await asyncio.to_thread(open_stuck, server.port, number, address))

    async def watch() -> None:
        nonlocal highest
        while True:
            highest = max(highest, server.megabytes)
            await asyncio.sleep(0.1)

    watching, arriving = asyncio.create_task(watch()), asyncio.create_task(arrive())
    during: list[float] = []
    while not arriving.done():
        during += await connection_times(server.port, 1000 + len(during), 1)
    show("connecting, meanwhile", during)
    show("connecting, immediately afterwards", await connection_times(server.port, 2000, 5))
    show("change, immediately afterwards", await push_times(server, healthy, 3))
    await asyncio.sleep(5)
    show("connecting, 5 s afterwards", await connection_times(server.port, 3000, 5))
    show("change, 5 s afterwards", await push_times(server, healthy, 3))
    watching.cancel()
    print(f"    peak memory: {highest:.0f} MB", flush=True)
    for connection in sockets:
        connection.close()
    for proxy in healthy:
        await proxy.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stuck", default="100,1000", help="numbers of clients that do not read")
    parser.add_argument("--services", type=int, default=1500, help="number of services (default 1500)")
    parser.add_argument("--peers", choices=("many", "one", "both"), default="both", help="addresses of these clients")
    options = parser.parse_args()
    for peers in ("many", "one") if options.peers == "both" else (options.peers,):
        for stuck in map(int, options.stuck.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                server = Server(pathlib.Path(folder), options.services)
                try:
                    asyncio.run(measure(server, stuck, peers))
                finally:
                    server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
