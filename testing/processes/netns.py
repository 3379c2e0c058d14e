"""Network namespaces on a bridge, and the redirection that captures a workload's traffic."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyroute2 import IPRoute
from pyroute2.nftables.expressions import genex, verdict
from pyroute2.nftables.main import NFTables

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
PROXY_GROUP = 1337  # group of a sidecar's Envoy, whose traffic is not captured
NF_ACCEPT, NFT_RETURN = 1, -5
TRANSPORT_HEADER = 2
META_L4PROTO, META_OIFNAME, META_SKGID = 16, 7, 11
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Host:
    """A network namespace, kept alive by a placeholder process."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise PermissionError("creating network namespaces requires root; run the tests as root")
        wait = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        self._holder = subprocess.Popen(
            wait, stdin=subprocess.PIPE, preexec_fn=lambda: _check(_libc.unshare(CLONE_NEWNET))
        )
        self.pid = self._holder.pid
        self._file = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        self.run(lambda: _up("lo"))

    def join(self) -> None:
        """Enter the namespace with the calling thread. For `preexec_fn`."""
        _check(_libc.setns(self._file, CLONE_NEWNET))

    def join_as_proxy(self) -> None:
        """Enter the namespace in the group whose traffic is not captured."""
        self.join()
        os.setgid(PROXY_GROUP)

    def run(self, work: Callable[[], T]) -> T:
        """Run a function in the namespace, in a separate thread.

        Sockets stay in the namespace in which they were created.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def inside() -> None:
            try:
                self.join()
                results.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def stop(self) -> None:
        os.close(self._file)
        if self._holder.stdin:
            self._holder.stdin.close()
        self._holder.wait(10)


def _up(name: str, address: str = "", prefix: int = 16, gateway: str = "") -> None:
    with IPRoute() as route:
        index = route.link_lookup(ifname=name)[0]
        if address:
            route.addr("add", index=index, address=address, prefixlen=prefix)
        route.link("set", index=index, state="up")
        if gateway:
            route.route("add", dst="default", gateway=gateway)


class Network:
    """A bridge in a separate host (`node`), with attached pods."""

    def __init__(self, address: str) -> None:
        self.address, self.node, self._stack = address, Host(), contextlib.ExitStack()
        self._stack.callback(self.node.stop)

        def create_bridge() -> None:
            with IPRoute() as route:
                route.link("add", ifname="bridge", kind="bridge")
            _up("bridge", address)

        self.node.run(create_bridge)

    def attach(self, address: str) -> Host:
        """Return a new host with an interface `eth0` that has this address."""
        pod = Host()
        self._stack.callback(pod.stop)
        name = f"veth{pod.pid}"

        def create_link() -> None:
            with IPRoute() as route:
                route.link("add", ifname=name, kind="veth", peer={"ifname": "eth0", "net_ns_pid": pod.pid})
                route.link(
                    "set",
                    index=route.link_lookup(ifname=name)[0],
                    master=route.link_lookup(ifname="bridge")[0],
                    state="up",
                )

        self.node.run(create_link)
        pod.run(lambda: _up("eth0", address, gateway=self.address))
        return pod

    def stop(self) -> None:
        self._stack.close()


def capture(outbound: int = 15001, inbound: int = 15006, excluded_ports: Sequence[int] = ()) -> None:
    """Redirect the TCP traffic of the current namespace, as iptables does for a sidecar.

    Inbound traffic to `excluded_ports` is not redirected.
    """
    with NFTables(nfgen_family=2) as nft:
        nft.table("add", name="mesh")
        for chain, hook in (("outbound", "output"), ("inbound", "prerouting")):
            nft.chain("add", table="mesh", name=chain, type="nat", hook=hook, priority=-100, policy=NF_ACCEPT)
        for keep in (_equal(META_SKGID, struct.pack("=I", PROXY_GROUP)), _equal(META_OIFNAME, b"lo".ljust(16, b"\0"))):
            nft.rule("add", table="mesh", chain="outbound", expressions=((*keep, *verdict(NFT_RETURN)),))
        for port in excluded_ports:
            rule = (*_equal(META_L4PROTO, b"\x06"), *_to_port(port), *verdict(NFT_RETURN))
            nft.rule("add", table="mesh", chain="inbound", expressions=(rule,))
        for chain, port in (("outbound", outbound), ("inbound", inbound)):
            nft.rule(
                "add", table="mesh", chain=chain, expressions=((*_equal(META_L4PROTO, b"\x06"), *_redirect(port)),)
            )


def _equal(meta: int, value: bytes) -> list[Any]:
    data = {"attrs": [("NFTA_DATA_VALUE", value)]}
    return [genex("meta", {"key": meta, "dreg": 1}), genex("cmp", {"sreg": 1, "op": 0, "data": data})]


def _to_port(port: int) -> list[Any]:
    """Match the TCP destination port."""
    data = {"attrs": [("NFTA_DATA_VALUE", struct.pack(">H", port))]}
    load = genex("payload", {"base": TRANSPORT_HEADER, "offset": 2, "len": 2, "dreg": 1})
    return [load, genex("cmp", {"sreg": 1, "op": 0, "data": data})]


def _redirect(port: int) -> list[Any]:
    data = {"attrs": [("NFTA_DATA_VALUE", struct.pack(">H", port))]}
    return [genex("immediate", {"dreg": 1, "data": data}), genex("redir", {"reg_proto_min": 1})]
