"""A whole mesh on real processes: the slots as files, a control plane that follows them, and proxies connected to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from pilot.mesh.model.proxy import NodeType, Proxy
from testing.clients.fleet import Content, Fleet, difference
from testing.edits.cluster_objects import WEST
from testing.edits.mesh_edits import EMPTY
from testing.edits.mesh_slots import SLOTS
from testing.processes.process import ControlPlane, free_port

AGREE_SECONDS = 60.0
"""How long two control planes may take to say the same; on a quiet machine it is a second."""
COMPLAINTS = (
    "Traceback (most recent call last)",
    "Task was destroyed but it is pending",
    "was never retrieved",
    "was never awaited",
)
"""What Python and we log of exceptions, and of tasks that nobody ended."""
VARIANTS = (True, False)
"""Each proxy connects by delta, and a twin of it, of another name, by state of the world."""


def base_state() -> list[int]:
    """Every slot at its first variant; those that are mostly empty hold nothing."""
    return [0 if slot.empty < 0.4 else EMPTY for slot in SLOTS]


def twin(proxy: Proxy) -> Proxy:
    name, _, namespace = proxy.id.partition(".")
    return msgspec.structs.replace(proxy, id=f"{name}-twin.{namespace}")


class RealMesh:
    """`state` is the variant of each slot. `folder` holds the files of the own cluster and of the mesh, `west` those of the other one."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work, self.folder, self.west = work, work / "config", work / WEST
        for folder in (self.folder, self.west):
            folder.mkdir(parents=True)
        self.state = base_state()
        for slot in range(len(SLOTS)):
            self._write(slot)
        self._started = 1
        self.plane = self.make_plane("live-1")
        self.fleet = Fleet(self.plane.xds)

    def make_plane(self, name: str) -> ControlPlane:
        """Another control plane on the same files."""
        work = self.work / name
        work.mkdir(exist_ok=True)
        more = ["--meshConfig", str(self.work / "mesh.yaml"), "--networksConfig", str(self.work / "networks.yaml")]
        more += ["--configDir", f"{WEST}={self.west}", "--ctrlz_port", str(control := free_port())]
        plane = ControlPlane(work, self.folder, more=more)
        plane.ports["control"] = control
        return plane

    async def start(self) -> None:
        await asyncio.to_thread(self.plane.wait_ready)
        for slot in range(len(SLOTS)):
            await self._connect(self.fleet, slot)

    async def stop(self) -> None:
        await self.fleet.stop()
        await asyncio.to_thread(self.plane.stop)

    async def restart(self, by: signal.Signals) -> None:
        """End the process by a signal, and connect everybody to another one."""
        self.plane.child.send_signal(by)
        await asyncio.to_thread(self.plane.child.wait, 60)
        await self.fleet.stop()
        self._started += 1
        self.plane = self.make_plane(f"live-{self._started}")
        self.fleet = Fleet(self.plane.xds)
        await self.start()

    async def complaints(self) -> list[str]:
        """What the logs of all processes so far say of mistakes of ours. Tasks that nobody ended are told of when garbage is collected."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.plane.ports['control']}/memj/forcecollection", method="PUT"
        )
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=10).close())
        logs = [path.read_text(errors="replace").splitlines() for path in sorted(self.work.glob("live-*/pilot.log"))]
        return [line for log in logs for line in log if any(told in line for told in COMPLAINTS)]

    async def set(self, slot: int, variant: int) -> None:
        """Write the file of a slot, or connect its proxies again."""
        self.state[slot] = variant
        if SLOTS[slot].kind == "proxy":
            await self._connect(self.fleet, slot)
        else:
            self._write(slot)

    def path(self, slot: int) -> pathlib.Path:
        kind = SLOTS[slot].kind
        if kind != "object":
            return self.work / f"{kind}.yaml"
        return (self.west if SLOTS[slot].cluster == WEST else self.folder) / f"{slot:02}.yaml"

    def _write(self, slot: int) -> None:
        """Files are replaced, as editors and controllers do; JSON is YAML."""
        kind, variants = SLOTS[slot].kind, SLOTS[slot].variants
        if kind in ("proxy", "rows"):  # rows that a process commits are its own
            return
        path, variant = self.path(slot), self.state[slot]
        if variant == EMPTY and kind == "object":
            path.unlink(missing_ok=True)
            return
        text = "{}" if variant == EMPTY else json.dumps(variants[variant]) if kind == "object" else variants[variant]
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        os.replace(fresh, path)

    async def _connect(self, fleet: Fleet, slot: int) -> None:
        if (
            SLOTS[slot].kind != "proxy" or SLOTS[slot].variants[0].type is NodeType.ZTUNNEL
        ):  # a ztunnel is told that nothing is there for it
            return
        for delta in VARIANTS:
            name = f"{SLOTS[slot].name} {'delta' if delta else 'state of the world'}"
            if self.state[slot] == EMPTY:
                await fleet.disconnect(name)
            else:
                proxy: Proxy = SLOTS[slot].variants[self.state[slot]]
                await fleet.connect(name, proxy if delta else twin(proxy), delta)

    @contextlib.asynccontextmanager
    async def fresh(self) -> AsyncIterator[Fleet]:
        """The same proxies, connected to a control plane that starts now."""
        plane = self.make_plane("fresh")
        fleet = Fleet(plane.xds)
        try:
            await asyncio.to_thread(plane.wait_ready)
            for slot in range(len(SLOTS)):
                await self._connect(fleet, slot)
            yield fleet
        finally:
            await fleet.stop()
            await asyncio.to_thread(plane.stop)

    async def disagreement(self) -> list[str]:
        """What the proxies have otherwise than those of a fresh start have it; waits for both to come to rest."""
        async with self.fresh() as fresh:
            deadline = time.monotonic() + AGREE_SECONDS
            await fresh.wait_until_idle(0.3)
            while wrong := compare(self.fleet, fresh):
                if time.monotonic() > deadline:
                    return wrong
                await asyncio.sleep(0.2)
        return []


def compare(live: Fleet, fresh: Fleet) -> list[str]:
    ended = [f"{slot}: its stream has ended" for fleet in (live, fresh) for slot, f in fleet.clients.items() if f.ended]
    return ended or difference(live.content(), fresh.content())


def held(contents: Sequence[Content]) -> int:
    """The number of resources that proxies hold."""
    return sum(len(have) for content in contents for have in content.values())


def resident_megabytes(pid: int) -> float:
    fields: list[Any] = pathlib.Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
