"""A pod and a peer in namespaces, in which everything that listens says its name: who answers shows where a connection went."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

from pyroute2 import IPRoute

from testing.processes.netns import Host, Network

PEER, POD, ELSEWHERE, PEER6, POD6 = "10.79.0.1", "10.79.1.1", "10.80.0.1", "fd00:79::1", "fd00:79::2"
ADDRESSES = {"peer": PEER, "pod": POD, "elsewhere": ELSEWHERE, "loopback": "127.0.0.1", "peer6": PEER6, "pod6": POD6}
PROXY = {15001: "outbound", 15006: "inbound", 15053: "agent"}
IP_TRANSPARENT, IPV6_TRANSPARENT, SO_MARK = 19, 75, 36
QUIET_SECONDS = 0.4
_libc = ctypes.CDLL(None, use_errno=True)


class Caller(NamedTuple):
    """Who connects: a process of the pod (of a user and a group) or of the peer. `source` is the address that it takes, `mark` that of its
    packets."""

    user: int = 1000
    group: int = 1000
    in_pod: bool = True
    source: str = ""
    mark: int = 0


CALLERS = {
    "application": Caller(),
    "group 7": Caller(group=7),
    "group 8": Caller(group=8),
    "peer": Caller(in_pod=False),
    "proxy": Caller(1337, 1337),
    "user of the proxy": Caller(1337),
    "group of the proxy": Caller(group=1337),
    "proxy as 127.0.0.6": Caller(1337, 1337, source="127.0.0.6"),
    "proxy in the name of the peer": Caller(1337, 1337, source=PEER, mark=1337),
}


class Listeners:
    """Sockets of one host: each answers whoever connects with its name, and the port and the address that were meant."""

    def __init__(self, names: dict[int, str], answers: dict[tuple[str, int], str]) -> None:
        """`names` are of ports of TCP, `answers` of addresses and ports of UDP."""
        self._selector = selectors.DefaultSelector()
        self._ended, self._end = socket.socketpair()
        self._selector.register(self._ended, selectors.EVENT_READ)
        for port, name in names.items():
            self._selector.register(self._listen(port), selectors.EVENT_READ, name)
        for address, name in answers.items():
            with _acting_as(1337 if name == "agent" else 0):
                made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind(address)
            self._selector.register(made, selectors.EVENT_READ, name)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        made = socket.socket(socket.AF_INET6)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setsockopt(socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
        made.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
        made.bind(("::", port))
        made.listen(64)
        return made

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                found = key.fileobj
                assert isinstance(found, socket.socket)
                if found is self._ended:
                    return
                if found.type is socket.SOCK_DGRAM:
                    _, sender = found.recvfrom(100)
                    found.sendto(str(key.data).encode(), sender)
                else:
                    connection, caller = found.accept()
                    with connection:
                        connection.sendall(
                            f"{key.data} {connection.getsockname()[1]} {caller[0].removeprefix('::ffff:')}".encode()
                        )

    def stop(self) -> None:
        self._end.send(b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        self._end.close()


class Pod:
    """The pod, in which the proxy's ports and an application listen, and its peer."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.network = Network(PEER)
        self._stack.callback(self.network.stop)
        self.host: Host = self.network.attach(POD)
        self.network.node.run(lambda: _add("bridge", (ELSEWHERE, 16), (PEER6, 64)))
        self.host.run(lambda: _add("eth0", (POD6, 64)))
        here = dict.fromkeys((53, 8080, 9090, 15002, 15008, 15020), "application")
        there = dict.fromkeys((53, 80, 443), "outside")
        self._stack.callback(self.host.run(lambda: Listeners(here | PROXY, {("127.0.0.1", 15053): "agent"})).stop)
        self._stack.callback(
            self.network.node.run(lambda: Listeners(there, {(PEER, 53): "outside", (ELSEWHERE, 53): "outside"})).stop
        )

    def reached(self, caller: str, target: str, port: int, protocol: str = "tcp") -> str:
        """Who answers: a name, with the port and the caller's address that it sees behind it where it is TCP; "nobody" after a while."""
        who = CALLERS[caller]
        host = self.host if who.in_pod else self.network.node
        return host.run(lambda: _ask(who, ADDRESSES[target], port, protocol))

    def stop(self) -> None:
        self._stack.close()


def _ask(who: Caller, address: str, port: int, protocol: str) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with _acting_as(who.user, who.group):
        made = socket.socket(family, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    try:
        with made as asked:
            asked.settimeout(QUIET_SECONDS)
            if who.mark:
                asked.setsockopt(socket.SOL_SOCKET, SO_MARK, who.mark)
            if who.source:
                asked.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
                asked.bind((who.source, 0))
            asked.connect((address, port))
            if protocol == "udp":
                asked.send(b"?")
            return asked.recv(100).decode()
    except OSError:
        return "nobody"


@contextlib.contextmanager
def _acting_as(user: int, group: int = 0) -> Iterator[None]:
    """This thread makes files, and sockets, as somebody else."""
    _libc.setfsgid(group)
    _libc.setfsuid(user)
    try:
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)


def _add(interface: str, *addresses: tuple[str, int]) -> None:
    with IPRoute() as route:
        index = route.link_lookup(ifname=interface)[0]
        for address, prefix in addresses:
            no_detection = (
                {"flags": 2} if ipaddress.ip_address(address).version == 6 else {}
            )  # IFA_F_NODAD: it is there at once
            route.addr("add", index=index, address=address, prefixlen=prefix, **no_detection)


@contextlib.contextmanager
def pod() -> Iterator[Pod]:
    """A pod with its peer, taken away at the end."""
    made = Pod()
    try:
        yield made
    finally:
        made.stop()
