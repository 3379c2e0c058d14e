"""A second box beside the first one, on a network of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator

from pyroute2 import IPRoute

from testing.processes.netns import Host
from tests.cluster.box.addresses import OUTSIDE, VARIABLE, balancers_of, node_of
from tests.cluster.box.cluster import Cluster
from tests.cluster.box.namespaces import in_namespaces

FIRST, SECOND = 1, 2
ADDRESSES = {FIRST: "192.0.2.1", SECOND: "192.0.2.2"}


@contextlib.asynccontextmanager
async def second_box(folder: pathlib.Path) -> AsyncIterator[Cluster]:
    """Run a box in another process. The boxes reach each other's API servers and load balancers, but not their pods."""
    host = await asyncio.to_thread(Host)
    await asyncio.to_thread(_connect, host)
    command = in_namespaces(sys.executable, "-m", "tests.cluster.box", network=False)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, VARIABLE: str(SECOND)},
        preexec_fn=host.join,
        limit=1 << 20,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(90):
            line = await process.stdout.readline()
        folder.mkdir()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.loads(line))
        yield Cluster(kubeconfig, folder)
    finally:
        process.stdin.close()
        await process.wait()
        await asyncio.to_thread(host.stop)


def _connect(host: Host) -> None:
    """Connect the nodes of both boxes by a link, with routes to what clusters show to the outside."""
    with IPRoute() as route:
        route.link("add", ifname=OUTSIDE, kind="veth", peer={"ifname": OUTSIDE, "net_ns_pid": host.pid})
    _configure(FIRST, SECOND)
    host.run(lambda: _configure(SECOND, FIRST))


def _configure(number: int, other: int) -> None:
    with IPRoute() as route:
        index = route.link_lookup(ifname=OUTSIDE)[0]
        route.addr("add", index=index, address=ADDRESSES[number], prefixlen=24)
        route.link("set", index=index, state="up")
        for destination in (f"{node_of(other)}/32", balancers_of(other)):
            route.route("add", dst=destination, gateway=ADDRESSES[other])
