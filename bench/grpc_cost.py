#!/usr/bin/env python3
"""Measure the cost of gRPC itself: a bare server that replays the control plane's responses to the fleet of a load
shape.

    python bench/grpc_cost.py --load FOLDER [--shapes S2,S3] [--repeats 5]

FOLDER contains the load programs (mesh.py, fleet.py, load.py). Every proxy connects to the control plane once, and its
responses are recorded. Then the same fleet connects to a bare asyncio server of grpcio on the same core with the same
options. That server answers the first request of each type with the recorded bytes and does nothing else. The output
has the CPU-seconds of both from the first connection to the last response, when the fleet connects for the first time
(cold) and again (reconnect): median and range over the repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import pathlib
import pickle
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import grpc
import uvloop
from envoy.service.discovery.v3 import discovery_pb2
from load_table import Server, free_port

from pilot.cli.pilot_discovery import GRPC_VARIABLES
from pilot.settings.process import ServeSettings
from pilot.xds.server import make_server

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
Recording = dict[str, dict[str, list[bytes]]]
"""Responses by node ID and type URL."""


def serve(recording: pathlib.Path, port: int) -> None:
    """Serve the recorded responses until killed."""
    responses: Recording = pickle.loads(recording.read_bytes())
    parse = discovery_pb2.DeltaDiscoveryRequest.FromString

    async def stream(_: Any, context: Any) -> None:
        pending: dict[str, list[bytes]] = {}
        while raw := await context.read():  # EOF is falsy
            request = parse(raw)
            if request.HasField("node"):
                pending = dict(responses[request.node.id])
            for message in pending.pop(request.type_url, ()):
                await context.write(message)

    async def run() -> None:
        methods = {"DeltaAggregatedResources": grpc.stream_stream_rpc_method_handler(stream)}
        server = make_server(ServeSettings(), [grpc.method_handlers_generic_handler(SERVICE, methods)])
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        await server.wait_for_termination()

    uvloop.run(run())


class Fleet:
    """The proxies of a shape. They can record their responses."""

    def __init__(self, load: pathlib.Path, name: str) -> None:
        self._fleets, programs = importlib.import_module("fleet"), importlib.import_module("mesh")
        shape = programs.SHAPES[name]
        pods = programs.pods(shape)
        self.nodes = [programs.node(pods[number % len(pods)]) for number in range(shape.proxies)]

    async def connect(self, port: int, process: Any, recording: Recording | None = None) -> float:
        """Connect all proxies, wait until they have all resources, and disconnect.

        Return the CPU-seconds of the server process.
        """
        fleet = self._fleets.Fleet(f"127.0.0.1:{port}", self.nodes, "delta")
        if recording is not None:
            for client in fleet.clients:
                self._record(client, recording)
        before = process.cpu()
        await fleet.connect()
        await fleet.ready(120)
        cost: float = process.cpu() - before
        await fleet.close()
        await asyncio.sleep(1)
        return cost

    @staticmethod
    def _record(client: Any, recording: Recording) -> None:
        responses, receive = recording.setdefault(client.node.id, {}), client._receive

        def record(message: bytes) -> None:
            responses.setdefault(discovery_pb2.DeltaDiscoveryResponse.FromString(message).type_url, []).append(message)
            receive(message)

        client._receive = record


async def measure(name: str, options: argparse.Namespace, work: pathlib.Path) -> None:
    load = importlib.import_module("load")
    folder, fleet, costs = work / name, Fleet(options.load, name), dict[str, list[float]]()
    subprocess.run(
        [sys.executable, str(options.load / "load.py"), "--shape", name, "--config-dir", str(folder), "--write-only"],
        check=True,
    )
    recording: Recording = {}
    for number in range(options.repeats + 1):
        server = Server([str(folder)], work / "log", options.command)
        try:
            process = load.Process(server.process.pid)
            if not number:  # recording slows the fleet, so this round is not measured
                await fleet.connect(server.grpc, process, recording)
                continue
            costs.setdefault("control plane cold", []).append(await fleet.connect(server.grpc, process))
            costs.setdefault("control plane reconnect", []).append(await fleet.connect(server.grpc, process))
        finally:
            await asyncio.to_thread(server.stop)
    recording_file = work / "sent"
    shared: dict[bytes, bytes] = {}
    for responses in recording.values():
        responses.update(
            {
                url: [shared.setdefault(message, message) for message in messages_of_type]
                for url, messages_of_type in responses.items()
            }
        )
    recording_file.write_bytes(pickle.dumps(recording))
    port = free_port()
    environment = {**os.environ, **GRPC_VARIABLES}
    bare = subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, __file__, "--serve", str(recording_file), "--port", str(port)],
        env=environment,
    )
    try:
        while True:
            with contextlib.suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            time.sleep(0.1)
        process = load.Process(bare.pid)
        for number in range(options.repeats + 1):
            cost = await fleet.connect(port, process)
            if number:  # the first round warms up
                costs.setdefault("bare server", []).append(cost)
    finally:
        bare.kill()
        bare.wait()
    size = sum(
        len(m) for responses in recording.values() for messages_of_type in responses.values() for m in messages_of_type
    )
    messages = sum(len(messages_of_type) for responses in recording.values() for messages_of_type in responses.values())
    print(f"{name}: {len(recording)} proxies, {messages} responses, {size / 1e6:.0f} MB")
    for server_name, messages_of_type in costs.items():
        print(
            f"| {name} | {server_name} | {statistics.median(messages_of_type):.2f} | {min(messages_of_type):.2f}-{max(messages_of_type):.2f} |",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=lambda p: pathlib.Path(p).resolve(), help="folder of the load programs")
    parser.add_argument("--shapes", default="S2,S3", help="load shapes, separated by commas")
    parser.add_argument("--repeats", type=int, default=5, help="measured rounds (default 5)")
    parser.add_argument("--serve", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    search = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    parser.add_argument("--command", default=shutil.which("pilot-discovery", path=search))
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.serve is not None:
        serve(options.serve, options.port)
        return 0
    sys.path.insert(0, str(options.load))
    os.sched_setaffinity(0, {1})  # the servers are on core 0
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        for name in options.shapes.split(","):
            asyncio.run(measure(name, options, pathlib.Path(work)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
