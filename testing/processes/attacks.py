"""Attacks on a control plane in a process of its own, by hostile clients and by broken configuration folders.

After each attack the proxies must have what a freshly started control plane gives them, and the log must have no internal error.
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
"""Attacks a mesh and lets go of it; returns what was wrong meanwhile. The end state is compared by who runs it."""
ANSWER_SECONDS = 60.0
CLEAR = {
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.PERMISSION_DENIED,
}
"""Statuses that tell a client why it is turned away."""
NARROW = ("grpc.http2.lookahead_bytes", 1)
"""What a client may be sent before it reads: so little that writes last."""
SERVICE_SLOT = next(i for i, slot in enumerate(SLOTS) if slot.name == "Service a/web")


# -- clients -----------------------------------------------------------------------------------------------------------


class Attacker:
    """One stream by state of the world that says what it is told to."""

    def __init__(self, channel: Any, number: int, node_id: str = "") -> None:
        self.node = envoy_node(
            proxy("sidecar", f"attacker-{number}", "a", f"10.200.{number // 250}.{number % 250 + 1}", {"app": "web"})
        )
        if node_id:
            self.node.id = node_id
        self.call = channel.stream_stream(f"/{SERVICE}/StreamAggregatedResources")()

    async def ask(self, type_url: str, *names: str, node: bool = True, nonce: str = "", error: str = "") -> None:
        request = discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names, response_nonce=nonce)
        if node:
            request.node.CopyFrom(self.node)
        if error:
            request.error_detail.code, request.error_detail.message = code_pb2.INTERNAL, error
        await self.call.write(request.SerializeToString())

    async def take(self) -> discovery_pb2.DiscoveryResponse | None:
        """The next response, None at the end of the stream."""
        data = await asyncio.wait_for(self.call.read(), ANSWER_SECONDS)
        return None if data is EOF else discovery_pb2.DiscoveryResponse.FromString(data)

    async def status(self) -> grpc.StatusCode:
        """How the stream ends; OK for one that is answered instead."""
        with contextlib.suppress(grpc.RpcError):
            if await self.take() is not None:
                return grpc.StatusCode.OK
        code: grpc.StatusCode = await asyncio.wait_for(self.call.code(), ANSWER_SECONDS)
        return code


@contextlib.asynccontextmanager
async def channels(mesh: RealMesh, count: int, *options: tuple[str, int]) -> AsyncIterator[list[Any]]:
    """Connections of their own; all streams over them end with the block."""
    opened: list[Any] = [
        grpc.aio.insecure_channel(mesh.plane.xds, options=[*OPTIONS, ("grpc.channel_id", n), *options])
        for n in range(count)
    ]
    try:
        yield opened
    finally:
        for channel in opened:
            await channel.close()


async def touch(mesh: RealMesh, times: int = 3) -> None:
    """Edits that concern everybody, and the one before them again."""
    for number in range(times):
        await mesh.set(SERVICE_SLOT, number % 3)
        await asyncio.sleep(0.15)
    await mesh.set(SERVICE_SLOT, 0)


async def streams_that_do_not_read(mesh: RealMesh, scale: float) -> list[str]:
    """Many ask for everything again and again and never read; the others are served all the while."""
    async with channels(mesh, max(2, int(100 * scale))) as opened:
        for number, channel in enumerate(opened):
            stuck = Attacker(channel, number)
            for url in (CDS, LDS):
                await stuck.ask(url, node=url == CDS)
        await touch(mesh)
        return await mesh.disagreement()


async def stopped_processes(mesh: RealMesh, scale: float) -> list[str]:
    """Clients are stopped by SIGSTOP in the middle of their stream, and go on later."""
    arguments = [sys.executable, "-m", "testing.processes.attacks", mesh.plane.xds]
    clients = [subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(max(1, int(12 * scale)))]
    try:
        for client in clients:
            assert client.stdout is not None
            await asyncio.to_thread(client.stdout.readline)  # it has its clusters
            client.send_signal(signal.SIGSTOP)
        await touch(mesh)
        wrong = await mesh.disagreement()
        for client in clients:
            client.send_signal(signal.SIGCONT)
        await touch(mesh)
        return wrong
    finally:
        for client in clients:
            client.kill()
            client.wait()
            assert client.stdout is not None
            client.stdout.close()


async def follow(address: str) -> None:
    """Run a client that acknowledges everything, until its process is stopped or killed."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        client = Attacker(channel, os.getpid() % 60_000)
        await client.ask(CDS)
        while (response := await client.take()) is not None:
            print(response.nonce, flush=True)
            await client.ask(CDS, node=False, nonce=response.nonce)


async def flood_of_streams(mesh: RealMesh, scale: float) -> list[str]:
    """New streams all at once: each gets its clusters, or a status that says why not."""
    ends: Counter[str] = Counter()

    async def one(number: int, channel: Any) -> None:
        client = Attacker(channel, number)
        try:
            await client.ask(CDS)
            response = await client.take()
            code = await client.call.code() if response is None else None
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            code = error.code() if isinstance(error, grpc.RpcError) else grpc.StatusCode.UNKNOWN
        except TimeoutError:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
        ends["clusters" if code is None else code.name if code not in CLEAR else "turned away"] += 1
        client.call.cancel()

    count = max(20, int(2500 * scale))
    async with channels(mesh, max(2, count // 50)) as opened:
        await asyncio.gather(*(one(number, opened[number % len(opened)]) for number in range(count)))
    return [
        f"{ends[name]} of {count} streams ended with {name}" for name in ends if name not in ("clusters", "turned away")
    ]


async def peers_that_go_in_the_middle(mesh: RealMesh, scale: float) -> list[str]:
    """Streams are cancelled, closed and cut off at any moment of their first second, while they are written what takes a while."""
    rng, large = random.Random(scale), mesh.folder / "large.yaml"
    large.write_text("\n---\n".join(json.dumps(service_entry(number)) for number in range(300)))
    ends = asyncio.get_running_loop().time() + max(1.0, 30 * scale)

    async def one(number: int) -> None:
        while asyncio.get_running_loop().time() < ends:
            async with channels(mesh, 1, NARROW) as (channel,):
                client = Attacker(channel, number)
                with contextlib.suppress(grpc.RpcError, TimeoutError):
                    for url in rng.sample(TYPES, rng.randint(1, 4)):
                        await client.ask(url, *rng.choice(((), ("nothing",))))
                    for _ in range(rng.randrange(3)):
                        await asyncio.wait_for(client.take(), rng.choice((0.01, 0.1, 1.0)))
                    if rng.random() < 0.3:
                        await client.call.done_writing()
                    await asyncio.sleep(rng.random() * rng.choice((0, 0.003, 0.03)))
                if rng.random() < 0.5:
                    client.call.cancel()

    pushes = asyncio.create_task(touch_until(mesh, ends))
    await asyncio.gather(*(one(number) for number in range(20)))
    await pushes
    large.unlink()
    return []


def service_entry(number: int) -> dict[str, Any]:
    """One of many objects, so that what everybody is sent is large."""
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


async def touch_until(mesh: RealMesh, ends: float) -> None:
    """Edits until a time of the loop."""
    while asyncio.get_running_loop().time() < ends:
        await touch(mesh, 1)


async def nack_storm(mesh: RealMesh, scale: float) -> list[str]:
    """Everything is refused, thousands of times, also what was never sent."""
    async with channels(mesh, 4) as opened:
        for number, channel in enumerate(opened):
            client = Attacker(channel, number)
            await client.ask(CDS)
            response = await client.take()
            if response is None:
                return ["a client that asks for its clusters gets none"]
            for storm in range(max(20, int(5000 * scale))):
                nonce = response.nonce if storm % 2 else f"never-{storm}"
                await client.ask(CDS, node=False, nonce=nonce, error="no\n" * 50)
        await touch(mesh)
    return []


async def wrong_node_ids(mesh: RealMesh, scale: float) -> list[str]:
    """Nodes that are none, nodes that change, and nodes of others: nobody else's stream may notice."""
    wrong = []
    async with channels(mesh, 3) as opened:
        for text in ("", "nobody", "sidecar~x~y~z", "robot~10.0.0.1~a.b~c", "~" * 5000):
            client = Attacker(opened[0], 1)
            client.node.id = text
            client.node.metadata.Clear()
            await client.ask(CDS)
            if (code := await client.status()) is not grpc.StatusCode.INVALID_ARGUMENT:
                wrong.append(f"the node id {text[:20]!r} ends with {code.name}")
        nameless = Attacker(opened[0], 2)
        await nameless.ask(CDS, node=False)
        if (code := await nameless.status()) is not grpc.StatusCode.INVALID_ARGUMENT:
            wrong.append(f"a stream without a node ends with {code.name}")
        for number, follower in enumerate(list(mesh.fleet.clients.values())):
            if follower.proxy.type == "sidecar":
                impostor = Attacker(opened[1], number, node_id=envoy_node(follower.proxy).id)
                impostor.node.metadata.update({"NAMESPACE": "elsewhere", "INSTANCE_IPS": follower.proxy.ips[0]})
                for url in TYPES:
                    await impostor.ask(url, node=url == CDS)
        await touch(mesh)
        wrong += await mesh.disagreement()
    return wrong


TURNED_AWAY = (asyncio.InvalidStateError, grpc.RpcError)
"""What a request raises whose stream has been ended already."""


async def requests_beyond_limits(mesh: RealMesh, scale: float) -> list[str]:
    """Names, types and sizes that no proxy has."""
    wrong = []
    async with channels(mesh, 3) as opened:
        many = Attacker(opened[0], 1)
        await many.ask(CDS)
        await many.take()
        names = [f"outbound|80||nobody-{n}.example.com" for n in range(int(100_000 * scale))]
        with contextlib.suppress(*TURNED_AWAY):
            for start in range(0, len(names), 40_000):
                await many.ask(EDS, *names[: start + 40_000], node=False)
        types = Attacker(opened[1], 2)
        with contextlib.suppress(*TURNED_AWAY):
            for number in range(max(50, int(3000 * scale))):
                await types.ask(f"type.googleapis.com/x.y.Z{number}", node=number == 0)
        large = Attacker(opened[2], 3)
        await large.ask(CDS, "x" * 5_000_000)
        if (code := await large.status()) not in CLEAR:
            wrong.append(f"a request of 5 MB ends with {code.name}")
        await touch(mesh)
        wrong += await mesh.disagreement()
    return wrong


# -- the folder --------------------------------------------------------------------------------------------------------


async def folder_chaos(mesh: RealMesh, scale: float) -> list[str]:
    """Files become pipes, folders, loops and rubbish, and files again."""
    path, text = mesh.path(SERVICE_SLOT), mesh.path(SERVICE_SLOT).read_text()
    for spoil in (as_truncated, as_pipe, as_folder, as_loop, as_rubbish, as_forbidden):
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
    moved = mesh.folder.with_name("moved")
    os.replace(mesh.folder, moved)
    await asyncio.sleep(0.3)
    os.replace(moved, mesh.folder)
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


def as_rubbish(path: pathlib.Path, text: str) -> None:
    path.write_bytes(b"\xff\x00{[" * 1000 + text.encode())


def as_forbidden(path: pathlib.Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0)


# -- the process -------------------------------------------------------------------------------------------------------


async def killed_in_pushes(mesh: RealMesh, scale: float) -> list[str]:
    """kill -9 while everybody is being served; the next process gives the same."""
    for number in range(max(1, int(5 * scale))):
        await mesh.set(SERVICE_SLOT, number % 3)
        await asyncio.sleep(0.02 + 0.05 * number)
        await mesh.restart(signal.SIGKILL)
    await mesh.set(SERVICE_SLOT, 0)
    return []


SCENARIOS: tuple[Scenario, ...] = (
    streams_that_do_not_read,
    stopped_processes,
    flood_of_streams,
    peers_that_go_in_the_middle,
    nack_storm,
    wrong_node_ids,
    requests_beyond_limits,
    folder_chaos,
    killed_in_pushes,
)


async def attack(mesh: RealMesh, scenario: Scenario, scale: float) -> list[str]:
    """One scenario; what was wrong meanwhile, what the log says of mistakes, and what is wrong now."""
    told = len(await mesh.complaints())
    wrong = await scenario(mesh, scale)
    await asyncio.to_thread(
        eventually, lambda: mesh.plane.get("/ready", "httpAddr") is not None, 30, "ready after an attack"
    )
    wrong += [f"afterwards: {w}" for w in await mesh.disagreement()]
    return wrong + [f"logged: {line}" for line in (await mesh.complaints())[told:]]


if __name__ == "__main__":
    asyncio.run(follow(sys.argv[1]))
