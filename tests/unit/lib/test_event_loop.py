"""The event loop, with and without gRPC."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import grpc
import uvloop
from grpc import aio

from pilot.lib.event_loop import EventLoop
from testing.clients.ads import EOF, open_channel

STREAMS = 600
"""More streams than the socket buffer of grpcio holds bytes."""


async def count_iterations() -> int:
    """Return the number of long iterations of the event loop in which each of many streams receives a message."""
    received = 0

    async def receive(_: Any, context: Any) -> None:
        nonlocal received
        while await context.read() is not EOF:
            received += 1

    server = aio.server()
    handler = grpc.method_handlers_generic_handler("test", {"send": grpc.stream_stream_rpc_method_handler(receive)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        calls = [channel.stream_stream("/test/send")() for _ in range(STREAMS)]
        await asyncio.gather(*(call.write(b"first") for call in calls))
        while received < STREAMS:
            await asyncio.sleep(0.01)
        sending = asyncio.gather(*(call.write(b"second") for call in calls))
        iterations = 0
        while received < 2 * STREAMS:
            await asyncio.sleep(0)
            time.sleep(0.002)  # gRPC's thread adds events
            iterations += 1
        await sending
    await server.stop(None)
    return iterations


def run_count_iterations() -> int:
    return uvloop.run(count_iterations(), loop_factory=EventLoop)


def test_several_grpc_events_are_handled_in_one_iteration() -> None:
    """grpcio has one queue of events for all event loops of a process.

    Events of the cancelled calls can occur after the event loop is closed. The test runs in a process of its own,
    because the event loop of the next test would log an error for each of them.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(run_count_iterations).result() < STREAMS / 4


def test_other_readers_are_called_as_usual() -> None:
    async def read() -> list[str]:
        received = list[str]()
        ours, theirs = socket.socketpair()
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def on_readable(name: str) -> None:
            received.append(name)
            loop.remove_reader(ours)
            done.set()

        loop.add_reader(ours, on_readable, "ours")
        theirs.send(b"xyz")
        await done.wait()
        assert ours.recv(10) == b"xyz"
        return received

    assert uvloop.run(read(), loop_factory=EventLoop) == ["ours"]
