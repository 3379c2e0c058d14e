"""The cluster's DNS server: Services, headless Services, and hosts outside of the cluster."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from typing import Any

from pilot.agent.dns.dns_message import AAAA, A, Address, build_answer, build_error, parse_query, truncate
from pilot.kube.list_watch import NamespacedName
from tests.cluster.box.addresses import DOMAIN, NODE
from tests.cluster.box.services import Services

NAME_ERROR, NOT_IMPLEMENTED = 3, 4


class Dns(asyncio.DatagramProtocol):
    """Answers on the node's port 53 over UDP and TCP. `outside` has the addresses of hosts outside of the cluster."""

    def __init__(self, services: Services) -> None:
        self._services, self.outside = services, dict[str, str]()
        self._transport: asyncio.DatagramTransport

    async def start(self) -> None:
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, (NODE, 53))
        await asyncio.start_server(self._serve_stream, NODE, 53)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(truncate(self._answer(data), 1232), addr)

    async def _serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">H", await reader.readexactly(2))
                answer = self._answer(await reader.readexactly(size))
                writer.write(struct.pack(">H", len(answer)) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, message: bytes) -> bytes:
        try:
            question = parse_query(message)
        except ValueError:
            return build_error(message, NOT_IMPLEMENTED)
        addresses = self._find(question.name.rstrip("."))
        if addresses is None or question.type not in (A, AAAA):
            header = bytearray(build_answer(question, (), 4096))
            if addresses is None:
                header[3] |= NAME_ERROR
            return bytes(header)
        return build_answer(question, addresses, 4096)

    def _find(self, name: str) -> list[Address] | None:
        """Return the addresses of a name, or None if there is no such name."""
        if name in self.outside:
            return [ipaddress.ip_address(self.outside[name])]
        labels = name.removesuffix(f".svc.{DOMAIN}").split(".")
        if name.count(".") < 2 or not name.endswith(f".svc.{DOMAIN}") or len(labels) not in (2, 3):
            return None
        host, key = "".join(labels[:-2]), NamespacedName(labels[-1], labels[-2])
        service = self._services.services.get(key)
        if service is None:
            return None
        spec = service["spec"]
        if not host and spec.get("clusterIP") not in (None, "", "None"):
            return [ipaddress.ip_address(address) for address in spec["clusterIPs"]]
        unready = spec.get("publishNotReadyAddresses", False)
        endpoints = [
            ipaddress.ip_address(address)
            for address, ready, name in self._services.endpoints(key)
            if (ready or unready) and (not host or name == host)
        ]
        return endpoints or None
