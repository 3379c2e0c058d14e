"""The network namespaces of pods. Each has an address and a link to the node, which routes between them."""

from __future__ import annotations

import asyncio
import pathlib
import subprocess

from pyroute2 import IPRoute

from testing.processes.netns import Host
from tests.cluster.box.addresses import BALANCERS, NODE, PODS, SERVICES


def prepare_node() -> None:
    """Give the node its address, and let it forward packets."""
    with IPRoute() as route:
        route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")
        route.link("add", ifname="node", kind="bridge")
        index = route.link_lookup(ifname="node")[0]
        route.link("set", index=index, state="up")
        route.addr("add", index=index, address=NODE, prefixlen=32)
        for addresses in (SERVICES, BALANCERS):  # a route must exist before the rules translate the address
            route.route("add", dst=addresses, oif=index, prefsrc=NODE)
    for name, value in (("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")):
        pathlib.Path(f"/proc/sys/net/ipv4/{name}").write_text(value)


class PodNetwork:
    """Hands out addresses, which are not used again soon."""

    def __init__(self) -> None:
        self._count = 0

    async def attach(self) -> tuple[Host, str]:
        """Return the namespace of a new pod, and its address."""
        self._count += 1
        number = self._count
        address = PODS.format(1 + number // 250 % 200, 1 + number % 250)
        host = await asyncio.to_thread(Host)
        await asyncio.to_thread(_connect, host, address, f"pod{number}")
        return host, address

    async def detach(self, host: Host) -> None:
        """Remove a namespace, whose processes have ended."""
        await asyncio.to_thread(host.stop)


def _connect(pod: Host, address: str, name: str) -> None:
    with IPRoute() as route:
        route.link("add", ifname=name, kind="veth", peer={"ifname": "eth0", "net_ns_pid": pod.pid})
        index = route.link_lookup(ifname=name)[0]
        route.link("set", index=index, state="up")
        route.route("add", dst=f"{address}/32", oif=index)
    pod.run(lambda: _configure(address))


def _configure(address: str) -> None:
    with IPRoute() as route:
        index = route.link_lookup(ifname="eth0")[0]
        route.addr("add", index=index, address=address, prefixlen=32)
        route.link("set", index=index, state="up")
        route.route("add", dst=f"{NODE}/32", oif=index, scope="link")
        route.route("add", dst="default", gateway=NODE)


def load_rules(rules: str) -> None:
    """Replace nftables rules in one transaction. Raise RuntimeError if the kernel rejects them."""
    result = subprocess.run(["nft", "-f", "-"], input=rules, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr)
