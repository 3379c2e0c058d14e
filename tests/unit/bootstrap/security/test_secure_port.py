"""The TLS port: its front, its server and its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pilot.bootstrap import ports
from pilot.bootstrap.security import secure_port
from pilot.bootstrap.security.secure_port import SecurePort
from pilot.lib.duration import parse_duration
from pilot.lib.start_error import StartError
from pilot.xds.net.listen_address import Address

DRAIN_TIME = parse_duration("7s")


class Server:
    """A gRPC server that records calls."""

    def __init__(self, journal: list[Any], error: Exception | None = None) -> None:
        self.journal, self._error = journal, error

    def add_insecure_port(self, address: str) -> int:
        if self._error is not None:
            raise self._error
        self.journal.append(f"port {address}")
        return 4711

    async def start(self) -> None:
        self.journal.append("start")

    async def stop(self, grace: Any) -> None:
        self.journal.append(f"stop {grace}")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    lines: list[Any] = []

    async def drain(server: Any, connections: Any, seconds: float) -> None:
        lines.append(("drain", type(server).__name__, connections, seconds))

    monkeypatch.setattr(ports, "drain", drain)
    monkeypatch.setattr(secure_port, "drain", drain)
    return lines


class Front:
    """The TLS front of a port."""

    inner = "unix:inner"

    def __init__(self, journal: list[Any], error: OSError | None = None) -> None:
        self.journal, self._error = journal, error

    async def listen(self, address: Address, context: Any, names: Any) -> int:
        if self._error is not None:
            raise self._error
        self.journal.append(("listen", str(address), context))
        return 4712

    def use_context(self, context: Any) -> None:
        self.journal.append(("use", context))

    def stop_accepting(self) -> None:
        self.journal.append("stop accepting")

    def close(self) -> None:
        self.journal.append("close")


def make_secure_port(
    journal: list[Any], context: Any = "context", error: OSError | None = None
) -> tuple[SecurePort, Any]:
    certificate: Any = SimpleNamespace(context=context, on_change=[])
    server: Any = Server(journal)
    front: Any = Front(journal, error)
    connections: Any = ["connections"]
    return SecurePort(
        server, front, certificate, lambda: "td", Address("", 15012), connections, DRAIN_TIME
    ), certificate


async def test_secure_port_accepts_drains_and_closes(journal: list[Any]) -> None:
    port, certificate = make_secure_port(journal)
    await port.start()
    assert (port.number, journal) == (
        4712,
        ["port unix:inner", "start", ("listen", "[::]:15012", "context")],
    )
    certificate.on_change[0]("other")
    await port.stop()
    assert journal[3:] == [("use", "other"), "stop accepting", ("drain", "Server", ["connections"], 7.0), "close"]


async def test_occupied_secure_address_leaves_nothing_open(journal: list[Any]) -> None:
    port, _ = make_secure_port(journal, error=OSError(98, "Address already in use"))
    with pytest.raises(StartError, match=r"^cannot listen on \[::\]:15012: Address already in use$"):
        await port.start()
    assert journal == ["port unix:inner", "start", "stop None"]


async def test_secure_port_needs_a_certificate(journal: list[Any]) -> None:
    port, _ = make_secure_port(journal, context=None)
    await port.start()
    await port.stop()
    assert (port.number, journal) == (15012, [])
