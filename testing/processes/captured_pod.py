"""A pod and a peer in network namespaces, with listeners that answer with their name, to see where a connection ends
up.
"""

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
    """The origin of a connection: a process of the pod, with a user and a group, or the peer.

    `source` is the source address, and `mark` the mark of its packets.
    """

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
    "proxy with the peer's address": Caller(1337, 1337, source=PEER, mark=1337),
}


class Listeners:
    """Listening sockets of one host.

    Each answers with its name and, for TCP, with the original port and the caller's address.
    """

    def __init__(self, names: dict[int, str], answers: dict[tuple[str, int], str]) -> None:
        """`names` are names of listeners by TCP port, `answers` by UDP address and port."""
        self._selector = selectors.DefaultSelector()
        self._stop_receiver, self._stop_sender = socket.socketpair()
        self._selector.register(self._stop_receiver, selectors.EVENT_READ)
        for port, name in names.items():
            self._selector.register(self._listen(port), selectors.EVENT_READ, name)
        for address, name in answers.items():
            with _as_user(1337 if name == "agent" else 0):
                udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind(address)
            self._selector.register(udp, selectors.EVENT_READ, name)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        listener = socket.socket(socket.AF_INET6)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setsockopt(socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
        listener.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
        listener.bind(("::", port))
        listener.listen(64)
        return listener

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._stop_receiver:
                    return
                if ready.type is socket.SOCK_DGRAM:
                    _, sender = ready.recvfrom(100)
                    ready.sendto(str(key.data).encode(), sender)
                else:
                    connection, caller = ready.accept()
                    with connection:
                        connection.sendall(
                            f"{key.data} {connection.getsockname()[1]} {caller[0].removeprefix('::ffff:')}".encode()
                        )

    def stop(self) -> None:
        self._stop_sender.send(b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        self._stop_sender.close()


class Pod:
    """A pod with the proxy's listeners and an application, and a peer."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.network = Network(PEER)
        self._stack.callback(self.network.stop)
        self.host: Host = self.network.attach(POD)
        self.network.node.run(lambda: _add("bridge", (ELSEWHERE, 16), (PEER6, 64)))
        self.host.run(lambda: _add("eth0", (POD6, 64)))
        pod_ports = dict.fromkeys((53, 8080, 9090, 15002, 15008, 15020), "application")
        peer_ports = dict.fromkeys((53, 80, 443), "outside")
        self._stack.callback(self.host.run(lambda: Listeners(pod_ports | PROXY, {("127.0.0.1", 15053): "agent"})).stop)
        self._stack.callback(
            self.network.node.run(
                lambda: Listeners(peer_ports, {(PEER, 53): "outside", (ELSEWHERE, 53): "outside"})
            ).stop
        )

    def destination(self, caller: str, target: str, port: int, protocol: str = "tcp") -> str:
        """Return the answer that a caller gets, or "no answer" after a timeout.

        The answer is the listener's name and, for TCP, the original port and the caller's address.
        """
        origin = CALLERS[caller]
        host = self.host if origin.in_pod else self.network.node
        return host.run(lambda: _connect_as(origin, ADDRESSES[target], port, protocol))

    def stop(self) -> None:
        self._stack.close()


def _connect_as(origin: Caller, address: str, port: int, protocol: str) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with _as_user(origin.user, origin.group):
        connection = socket.socket(family, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    try:
        with connection as stream:
            stream.settimeout(QUIET_SECONDS)
            if origin.mark:
                stream.setsockopt(socket.SOL_SOCKET, SO_MARK, origin.mark)
            if origin.source:
                stream.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
                stream.bind((origin.source, 0))
            stream.connect((address, port))
            if protocol == "udp":
                stream.send(b"?")
            return stream.recv(100).decode()
    except OSError:
        return "no answer"


@contextlib.contextmanager
def _as_user(user: int, group: int = 0) -> Iterator[None]:
    """Create files and sockets of this thread as another user."""
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
            # IFA_F_NODAD makes the address usable immediately.
            no_detection = {"flags": 2} if ipaddress.ip_address(address).version == 6 else {}
            route.addr("add", index=index, address=address, prefixlen=prefix, **no_detection)


@contextlib.contextmanager
def pod() -> Iterator[Pod]:
    """Yield a pod with its peer."""
    pair = Pod()
    try:
        yield pair
    finally:
        pair.stop()
