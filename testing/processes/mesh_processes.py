"""A whole mesh of real processes: slots as files, a control plane that reads them, and proxies connected to it."""

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

AGREEMENT_SECONDS = 60.0
"""Time for two control planes to agree. On an idle machine it takes a second."""
ERROR_MARKS = (
    "Traceback (most recent call last)",
    "Task was destroyed but it is pending",
    "was never retrieved",
    "was never awaited",
)
"""Parts of log lines about unhandled exceptions and abandoned tasks."""
VARIANTS = (True, False)
"""Each proxy uses delta xDS. A twin with another name uses state of the world."""


def base_state() -> list[int]:
    """Return every slot at its first variant; slots that are mostly empty are empty."""
    return [0 if slot.empty < 0.4 else EMPTY for slot in SLOTS]


def twin(proxy: Proxy) -> Proxy:
    """Return the proxy with another name."""
    name, _, namespace = proxy.id.partition(".")
    return msgspec.structs.replace(proxy, id=f"{name}-twin.{namespace}")


class RealMesh:
    """A control plane and its proxies.

    `state` is the variant of each slot. `folder` contains the files of the local cluster, `west` those of the remote
    cluster.
    """

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
        """Start another control plane with the same files."""
        work = self.work / name
        work.mkdir(exist_ok=True)
        more = ["--meshConfig", str(self.work / "mesh.yaml"), "--networksConfig", str(self.work / "networks.yaml")]
        more += ["--configDir", f"{WEST}={self.west}", "--ctrlz_port", str(control := free_port())]
        # Allocated addresses depend on the order of edits, so a new control plane would allocate others.
        plane = ControlPlane(work, self.folder, more=more, environ={"PILOT_ENABLE_IP_AUTOALLOCATE": "false"})
        plane.ports["control"] = control
        return plane

    async def start(self) -> None:
        await asyncio.to_thread(self.plane.wait_ready)
        for slot in range(len(SLOTS)):
            await self._connect(self.fleet, slot)

    async def stop(self) -> None:
        await self.fleet.stop()
        await asyncio.to_thread(self.plane.stop)

    async def restart(self, signal_number: signal.Signals) -> None:
        """End the process by a signal, and connect all proxies to a new one."""
        self.plane.child.send_signal(signal_number)
        await asyncio.to_thread(self.plane.child.wait, 60)
        await self.fleet.stop()
        self._started += 1
        self.plane = self.make_plane(f"live-{self._started}")
        self.fleet = Fleet(self.plane.xds)
        await self.start()

    async def logged_errors(self) -> list[str]:
        """Return log lines about internal errors. Garbage is collected first, so that abandoned tasks are logged."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.plane.ports['control']}/memj/forcecollection", method="PUT"
        )
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=10).close())
        logs = [path.read_text(errors="replace").splitlines() for path in sorted(self.work.glob("live-*/pilot.log"))]
        return [line for log in logs for line in log if any(mark in line for mark in ERROR_MARKS)]

    async def set(self, slot: int, variant: int) -> None:
        """Write the file of a slot, or reconnect its proxies."""
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
        """Replace a file atomically, as editors and controllers do. JSON is valid YAML."""
        kind, variants = SLOTS[slot].kind, SLOTS[slot].variants
        if kind in ("proxy", "rows"):  # a control plane commits such rows itself
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
        if SLOTS[slot].kind != "proxy" or SLOTS[slot].variants[0].type is NodeType.ZTUNNEL:
            return  # ztunnels use other types
        for delta in VARIANTS:
            name = f"{SLOTS[slot].name} {'delta' if delta else 'state of the world'}"
            if self.state[slot] == EMPTY:
                await fleet.disconnect(name)
            else:
                proxy: Proxy = SLOTS[slot].variants[self.state[slot]]
                await fleet.connect(name, proxy if delta else twin(proxy), delta)

    @contextlib.asynccontextmanager
    async def fresh(self) -> AsyncIterator[Fleet]:
        """Connect the same proxies to a new control plane."""
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

    async def differences(self) -> list[str]:
        """Return the differences between the proxies' resources and those from a new control plane, once both are idle."""
        async with self.fresh() as fresh:
            deadline = time.monotonic() + AGREEMENT_SECONDS
            await fresh.wait_until_idle(0.3)
            while lines := compare(self.fleet, fresh):
                if time.monotonic() > deadline:
                    return lines
                await asyncio.sleep(0.2)
        return []


def compare(live: Fleet, fresh: Fleet) -> list[str]:
    """Return the differences between two fleets."""
    ended = [
        f"{slot}: the stream has ended"
        for fleet in (live, fresh)
        for slot, client in fleet.clients.items()
        if client.ended
    ]
    return ended or difference(live.content(), fresh.content())


def resource_count(contents: Sequence[Content]) -> int:
    """Return the total number of resources."""
    return sum(len(resources) for content in contents for resources in content.values())


def resident_megabytes(pid: int) -> float:
    fields: list[Any] = pathlib.Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
