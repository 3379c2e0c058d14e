"""Attacks on a control plane process by hostile clients and broken configuration folders.

After each attack, the proxies must have the same resources as with a new control plane, and the log must not contain
internal errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import code_pb2

from pilot.xds.ads import SERVICE
from testing.clients.ads import EOF, OPTIONS
from testing.clients.fleet import CDS, EDS, LDS, TYPES, envoy_node
from testing.edits.mesh_slots import SLOTS
from testing.mesh.world import proxy
from testing.processes.mesh_processes import RealMesh
from testing.processes.process import eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
Scenario = Callable[[RealMesh, float], Awaitable[list[str]]]
"""Attacks a mesh, ends the attack, and returns the failures meanwhile. The caller checks the final state."""
ANSWER_SECONDS = 60.0
REJECTIONS = {
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.PERMISSION_DENIED,
}
"""Statuses with which a client may be rejected."""
SMALL_WINDOW = ("grpc.http2.lookahead_bytes", 1)
"""A tiny flow control window, so that writes block until the client reads."""
SERVICE_SLOT = next(i for i, slot in enumerate(SLOTS) if slot.name == "Service a/web")


# -- clients -----------------------------------------------------------------------------------------------------------


class Attacker:
    """A state-of-the-world stream that sends arbitrary requests."""

    def __init__(self, channel: Any, number: int, node_id: str = "") -> None:
        self.node = envoy_node(
            proxy("sidecar", f"attacker-{number}", "a", f"10.200.{number // 250}.{number % 250 + 1}", {"app": "web"})
        )
        if node_id:
            self.node.id = node_id
        self.call = channel.stream_stream(f"/{SERVICE}/StreamAggregatedResources")()

    async def request(self, type_url: str, *names: str, node: bool = True, nonce: str = "", error: str = "") -> None:
        message = discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names, response_nonce=nonce)
        if node:
            message.node.CopyFrom(self.node)
        if error:
            message.error_detail.code, message.error_detail.message = code_pb2.INTERNAL, error
        await self.call.write(message.SerializeToString())

    async def receive(self) -> discovery_pb2.DiscoveryResponse | None:
        """Return the next response, or None at the end of the stream."""
        data = await asyncio.wait_for(self.call.read(), ANSWER_SECONDS)
        return None if data is EOF else discovery_pb2.DiscoveryResponse.FromString(data)

    async def status(self) -> grpc.StatusCode:
        """Return the final status of the stream, or OK if a response arrives."""
        with contextlib.suppress(grpc.RpcError):
            if await self.receive() is not None:
                return grpc.StatusCode.OK
        code: grpc.StatusCode = await asyncio.wait_for(self.call.code(), ANSWER_SECONDS)
        return code


@contextlib.asynccontextmanager
async def channels(mesh: RealMesh, count: int, *options: tuple[str, int]) -> AsyncIterator[list[Any]]:
    """Open separate connections. All streams on them end with the block."""
    connections: list[Any] = [
        grpc.aio.insecure_channel(mesh.plane.xds, options=[*OPTIONS, ("grpc.channel_id", n), *options])
        for n in range(count)
    ]
    try:
        yield connections
    finally:
        for channel in connections:
            await channel.close()


async def touch(mesh: RealMesh, times: int = 3) -> None:
    """Make edits that affect every proxy, and revert them."""
    for number in range(times):
        await mesh.set(SERVICE_SLOT, number % 3)
        await asyncio.sleep(0.15)
    await mesh.set(SERVICE_SLOT, 0)


async def unread_streams(mesh: RealMesh, scale: float) -> list[str]:
    """Clients subscribe to everything and never read. Other proxies must still be served."""
    async with channels(mesh, max(2, int(100 * scale))) as connections:
        for number, channel in enumerate(connections):
            stuck = Attacker(channel, number)
            for url in (CDS, LDS):
                await stuck.request(url, node=url == CDS)
        await touch(mesh)
        return await mesh.differences()


async def stopped_processes(mesh: RealMesh, scale: float) -> list[str]:
    """Client processes are stopped by SIGSTOP in the middle of a stream and continued later."""
    arguments = [sys.executable, "-m", "testing.processes.attacks", mesh.plane.xds]
    clients = [subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(max(1, int(12 * scale)))]
    try:
        for client in clients:
            assert client.stdout is not None
            await asyncio.to_thread(client.stdout.readline)  # the client has received its clusters
            client.send_signal(signal.SIGSTOP)
        await touch(mesh)
        failures = await mesh.differences()
        for client in clients:
            client.send_signal(signal.SIGCONT)
        await touch(mesh)
        return failures
    finally:
        for client in clients:
            client.kill()
            client.wait()
            assert client.stdout is not None
            client.stdout.close()


async def run_client(address: str) -> None:
    """Run a client that acknowledges everything, until its process is stopped or killed."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        client = Attacker(channel, os.getpid() % 60_000)
        await client.request(CDS)
        while (response := await client.receive()) is not None:
            print(response.nonce, flush=True)
            await client.request(CDS, node=False, nonce=response.nonce)


async def flood_of_streams(mesh: RealMesh, scale: float) -> list[str]:
    """Many streams start at once. Each must get its clusters or a status that says why not."""
    outcomes: Counter[str] = Counter()

    async def open_stream(number: int, channel: Any) -> None:
        client = Attacker(channel, number)
        try:
            await client.request(CDS)
            response = await client.receive()
            code = await client.call.code() if response is None else None
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            code = error.code() if isinstance(error, grpc.RpcError) else grpc.StatusCode.UNKNOWN
        except TimeoutError:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
        outcomes["clusters" if code is None else code.name if code not in REJECTIONS else "rejected"] += 1
        client.call.cancel()

    count = max(20, int(2500 * scale))
    async with channels(mesh, max(2, count // 50)) as connections:
        await asyncio.gather(*(open_stream(number, connections[number % len(connections)]) for number in range(count)))
    return [
        f"{outcomes[name]} of {count} streams ended with {name}"
        for name in outcomes
        if name not in ("clusters", "rejected")
    ]


async def abrupt_disconnects(mesh: RealMesh, scale: float) -> list[str]:
    """Streams are cancelled, closed and cut off within their first second, during long writes."""
    rng, large = random.Random(scale), mesh.folder / "large.yaml"
    large.write_text("\n---\n".join(json.dumps(service_entry(number)) for number in range(300)))
    deadline = asyncio.get_running_loop().time() + max(1.0, 30 * scale)

    async def misbehave(number: int) -> None:
        while asyncio.get_running_loop().time() < deadline:
            async with channels(mesh, 1, SMALL_WINDOW) as (channel,):
                client = Attacker(channel, number)
                with contextlib.suppress(grpc.RpcError, TimeoutError):
                    for url in rng.sample(TYPES, rng.randint(1, 4)):
                        await client.request(url, *rng.choice(((), ("nothing",))))
                    for _ in range(rng.randrange(3)):
                        await asyncio.wait_for(client.receive(), rng.choice((0.01, 0.1, 1.0)))
                    if rng.random() < 0.3:
                        await client.call.done_writing()
                    await asyncio.sleep(rng.random() * rng.choice((0, 0.003, 0.03)))
                if rng.random() < 0.5:
                    client.call.cancel()

    pushes = asyncio.create_task(touch_until(mesh, deadline))
    await asyncio.gather(*(misbehave(number) for number in range(20)))
    await pushes
    large.unlink()
    return []


def service_entry(number: int) -> dict[str, Any]:
    """Return one of many objects that make responses large."""
    spec = {
        "hosts": [f"large-{number}.example.com"],
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "resolution": "STATIC",
    }
    endpoints = [{"address": f"10.9.{number % 256}.{host}"} for host in range(1, 21)]
    metadata = {"name": f"large-{number}", "namespace": "a"}
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "ServiceEntry",
        "metadata": metadata,
        "spec": {**spec, "endpoints": endpoints},
    }


async def touch_until(mesh: RealMesh, deadline: float) -> None:
    """Make edits until a time of the event loop."""
    while asyncio.get_running_loop().time() < deadline:
        await touch(mesh, 1)


async def nack_storm(mesh: RealMesh, scale: float) -> list[str]:
    """Clients send thousands of NACKs, also with unknown nonces."""
    async with channels(mesh, 4) as connections:
        for number, channel in enumerate(connections):
            client = Attacker(channel, number)
            await client.request(CDS)
            response = await client.receive()
            if response is None:
                return ["no response to a request for clusters"]
            for storm in range(max(20, int(5000 * scale))):
                nonce = response.nonce if storm % 2 else f"never-{storm}"
                await client.request(CDS, node=False, nonce=nonce, error="no\n" * 50)
        await touch(mesh)
    return []


async def wrong_node_ids(mesh: RealMesh, scale: float) -> list[str]:
    """Clients use invalid node IDs, changing ones, and those of other proxies. Other streams must not be affected."""
    failures = []
    async with channels(mesh, 3) as connections:
        for text in ("", "invalid", "sidecar~x~y~z", "robot~10.0.0.1~a.b~c", "~" * 5000):
            client = Attacker(connections[0], 1)
            client.node.id = text
            client.node.metadata.Clear()
            await client.request(CDS)
            if (code := await client.status()) is not grpc.StatusCode.INVALID_ARGUMENT:
                failures.append(f"node ID {text[:20]!r}: stream ended with {code.name}")
        nameless = Attacker(connections[0], 2)
        await nameless.request(CDS, node=False)
        if (code := await nameless.status()) is not grpc.StatusCode.INVALID_ARGUMENT:
            failures.append(f"no node: stream ended with {code.name}")
        for number, follower in enumerate(list(mesh.fleet.clients.values())):
            if follower.proxy.type == "sidecar":
                impostor = Attacker(connections[1], number, node_id=envoy_node(follower.proxy).id)
                impostor.node.metadata.update({"NAMESPACE": "elsewhere", "INSTANCE_IPS": follower.proxy.ips[0]})
                for url in TYPES:
                    await impostor.request(url, node=url == CDS)
        await touch(mesh)
        failures += await mesh.differences()
    return failures


REJECTION_ERRORS = (asyncio.InvalidStateError, grpc.RpcError)
"""Errors of a request on a stream that has ended already."""


async def requests_beyond_limits(mesh: RealMesh, scale: float) -> list[str]:
    """Clients request too many names and types, and send too large a message."""
    failures = []
    async with channels(mesh, 3) as connections:
        many = Attacker(connections[0], 1)
        await many.request(CDS)
        await many.receive()
        names = [f"outbound|80||absent-{n}.example.com" for n in range(int(100_000 * scale))]
        with contextlib.suppress(*REJECTION_ERRORS):
            for start in range(0, len(names), 40_000):
                await many.request(EDS, *names[: start + 40_000], node=False)
        types = Attacker(connections[1], 2)
        with contextlib.suppress(*REJECTION_ERRORS):
            for number in range(max(50, int(3000 * scale))):
                await types.request(f"type.googleapis.com/x.y.Z{number}", node=number == 0)
        large = Attacker(connections[2], 3)
        await large.request(CDS, "x" * 5_000_000)
        if (code := await large.status()) not in REJECTIONS:
            failures.append(f"request of 5 MB: stream ended with {code.name}")
        await touch(mesh)
        failures += await mesh.differences()
    return failures


# -- the folder --------------------------------------------------------------------------------------------------------


async def folder_chaos(mesh: RealMesh, scale: float) -> list[str]:
    """Files become pipes, folders, symlink loops and garbage, and valid files again."""
    path, text = mesh.path(SERVICE_SLOT), mesh.path(SERVICE_SLOT).read_text()
    for spoil in (as_truncated, as_pipe, as_folder, as_loop, as_garbage, as_forbidden):
        for _ in range(max(1, int(10 * scale))):
            spoil(path, text)
            await asyncio.sleep(0.12)
            remove(path)
            path.write_text(text)
            await asyncio.sleep(0.12)
    odd = [os.fsencode(mesh.folder) + name for name in (b"/\xff\xfe.yaml", b"/a\nb.yaml", b"/" + b"x" * 240 + b".yaml")]
    for name in odd:
        with open(name, "w") as file:
            file.write(text.replace("10.96.0.1", "10.96.0.99"))
    huge = mesh.folder / "huge.yaml"
    size = max(100_000, int(100e6 * scale))
    with huge.open("w") as file:
        while file.tell() < size:
            file.write(
                "---\n"
                + json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": 7}, "spec": {}})
                + "\n"
            )
    await asyncio.sleep(0.5)
    await touch(mesh)
    huge.unlink()
    for name in odd:
        os.unlink(name)
    renamed = mesh.folder.with_name("moved")
    os.replace(mesh.folder, renamed)
    await asyncio.sleep(0.3)
    os.replace(renamed, mesh.folder)
    return []


def remove(path: pathlib.Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def as_truncated(path: pathlib.Path, text: str) -> None:
    path.write_text(text[: len(text) // 2])


def as_pipe(path: pathlib.Path, text: str) -> None:
    path.unlink()
    os.mkfifo(path)


def as_folder(path: pathlib.Path, text: str) -> None:
    path.unlink()
    path.mkdir()
    (path / "inner.yaml").write_text(text)


def as_loop(path: pathlib.Path, text: str) -> None:
    path.unlink()
    path.symlink_to(path.name)


def as_garbage(path: pathlib.Path, text: str) -> None:
    path.write_bytes(b"\xff\x00{[" * 1000 + text.encode())


def as_forbidden(path: pathlib.Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0)


# -- the process -------------------------------------------------------------------------------------------------------


async def kill_during_pushes(mesh: RealMesh, scale: float) -> list[str]:
    """The control plane is killed with SIGKILL during pushes. The next process must send the same."""
    for number in range(max(1, int(5 * scale))):
        await mesh.set(SERVICE_SLOT, number % 3)
        await asyncio.sleep(0.02 + 0.05 * number)
        await mesh.restart(signal.SIGKILL)
    await mesh.set(SERVICE_SLOT, 0)
    return []


SCENARIOS: tuple[Scenario, ...] = (
    unread_streams,
    stopped_processes,
    flood_of_streams,
    abrupt_disconnects,
    nack_storm,
    wrong_node_ids,
    requests_beyond_limits,
    folder_chaos,
    kill_during_pushes,
)


async def attack(mesh: RealMesh, scenario: Scenario, scale: float) -> list[str]:
    """Run one scenario, and return its failures, logged internal errors, and differences in the final state."""
    lines_before = len(await mesh.logged_errors())
    failures = await scenario(mesh, scale)
    await asyncio.to_thread(
        eventually,
        lambda: mesh.plane.get("/ready", "httpAddr") is not None,
        30,
        "the control plane to be ready after an attack",
    )
    failures += [f"afterwards: {difference}" for difference in await mesh.differences()]
    return failures + [f"logged: {line}" for line in (await mesh.logged_errors())[lines_before:]]


if __name__ == "__main__":
    asyncio.run(run_client(sys.argv[1]))
