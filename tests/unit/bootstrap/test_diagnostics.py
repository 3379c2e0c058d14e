"""Debug pages for remote callers, the ControlZ port, and logs of stacks."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp
import grpc
import pytest

from pilot.bootstrap import diagnostics
from pilot.bootstrap.diagnostics import ControlzPort, HttpIdentities, debug_over_xds, log_stacks
from pilot.debug import answer_slots
from pilot.debug.page import Refused
from pilot.debug.sources import Sources
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.xds.authn.identity import Caller, IdentityError, TooManyCallers
from pilot.xds.debug_requests import DebugRequestError
from pilot.xds.net.listen_address import Address
from testing.kube.kube_access import until
from testing.mesh.debug_server import FakeFleet, FakeProblems


@pytest.fixture
def sources() -> Sources:
    """Sources of pages. The slots for responses belong to the event loop of one test."""
    return Sources(Mesh(), Metrics(), FakeFleet(), lambda: FakeProblems(()))


@pytest.mark.parametrize(
    ("status", "text", "identity", "code", "message"),
    [
        (400, "no such page", "spiffe://a", grpc.StatusCode.INVALID_ARGUMENT, "no such page"),
        (401, "", "", grpc.StatusCode.UNAUTHENTICATED, "authentication required"),
        (
            403,
            "",
            "spiffe://a",
            grpc.StatusCode.PERMISSION_DENIED,
            'the debug info is not available for current identity: "spiffe://a"',
        ),
    ],
)
async def test_refused_page_maps_to_a_grpc_status(
    monkeypatch: pytest.MonkeyPatch,
    sources: Sources,
    status: int,
    text: str,
    identity: str,
    code: grpc.StatusCode,
    message: str,
) -> None:
    async def refuse(*_: Any) -> Any:
        raise Refused(status, text)

    monkeypatch.setattr(diagnostics, "ask", refuse)
    with pytest.raises(DebugRequestError) as error:
        async with debug_over_xds(sources)("type", ["name"], identity):
            pass
    assert error.value.args == (code, message)


async def test_debug_request_of_a_tenant_beyond_the_limit_ends_its_stream(
    monkeypatch: pytest.MonkeyPatch, sources: Sources
) -> None:
    monkeypatch.setattr(answer_slots, "MAX_WAITING", 0)
    with pytest.raises(DebugRequestError) as error:
        async with debug_over_xds(sources)("type", ["name"], "spiffe://cluster.local/ns/shop/sa/tea"):
            pass
    text = "more than 0 requests of the namespace wait for debug pages"
    assert error.value.args == (grpc.StatusCode.RESOURCE_EXHAUSTED, text)


@pytest.mark.parametrize(("identity", "identities"), [("spiffe://a", ("spiffe://a",)), ("", ())])
async def test_page_request_carries_the_identity(
    monkeypatch: pytest.MonkeyPatch, sources: Sources, identity: str, identities: tuple[str, ...]
) -> None:
    calls: list[Any] = []

    async def ask(*args: Any) -> Any:
        calls.append(args)
        return ["resources"], "istiod-1"

    monkeypatch.setattr(diagnostics, "ask", ask)
    async with debug_over_xds(sources)("type", ["name"], identity) as answer:
        assert tuple(answer) == (["resources"], "istiod-1")
    assert calls == [(sources, "type", ["name"], identities)]


async def test_http_callers_are_authenticated_by_token() -> None:
    async def authenticate(caller: Caller) -> Sequence[str]:
        if caller.token != "right":
            raise IdentityError("wrong")
        return (f"spiffe://{caller.address}",)

    identify = HttpIdentities(authenticate)
    assert await identify("10.0.0.1:1", {"authorization": "Bearer right"}) == ("spiffe://10.0.0.1:1",)
    assert await identify("10.0.0.1:1", {}) == ()


async def test_http_caller_is_asked_to_try_again_if_too_many_others_wait() -> None:
    async def postpone(_: Caller) -> Sequence[str]:
        raise TooManyCallers("too many callers")

    with pytest.raises(Refused, match=r"^too many callers$") as refused:
        await HttpIdentities(postpone)("10.0.0.1", {})
    assert refused.value.status == 429


FREE_PORT = Address("127.0.0.1", 0)


@pytest.fixture
def occupied() -> Iterator[Address]:
    """An address that another socket listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield Address(*other.getsockname())


async def test_controlz_logs_its_address_or_that_it_is_occupied(
    occupied: Address, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    ends: list[str] = []
    port = ControlzPort(FREE_PORT, Metrics(), lambda: ends.append("end"))
    await port.start()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port.number}/scopej/") as response:
            assert response.status == 200
        async with session.put(f"http://127.0.0.1:{port.number}/homej/exit") as response:
            assert response.status == 202
    await until(lambda: ends == ["end"])
    await port.stop()
    await ControlzPort(occupied, Metrics(), lambda: None).start()
    assert caplog.messages[0] == f"ControlZ available at 127.0.0.1:{port.number}"
    assert caplog.messages[-1].startswith(f"ControlZ is not available: cannot listen on {occupied}: ")


async def wait_nested(depth: int, event: asyncio.Event) -> None:
    if depth:
        await wait_nested(depth - 1, event)
    else:
        await event.wait()


def block_nested(depth: int, entered: threading.Event, event: threading.Event) -> None:
    if depth:
        block_nested(depth - 1, entered, event)
    else:
        entered.set()
        event.wait(30)


async def test_stack_lists_twelve_calls_innermost_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    until, entered, leave = asyncio.Event(), threading.Event(), threading.Event()
    task = asyncio.create_task(wait_nested(20, until), name="deep")
    thread = threading.Thread(target=block_nested, args=(20, entered, leave), name="deeper")
    thread.start()
    assert entered.wait(30)
    await asyncio.sleep(0)
    try:
        log_stacks()
    finally:
        until.set()
        leave.set()
        await task
        thread.join()
    [stack] = [message for message in caplog.messages if message.startswith("stack of thread deeper: ")]
    calls = [place.split()[0] for place in stack.removeprefix("stack of thread deeper: ").split(" in ")]
    assert (len(calls), calls[-1]) == (12, "test_diagnostics.block_nested")
    assert calls[0] != "test_diagnostics.block_nested", "the innermost call is the wait of the event"
    [stack] = [message for message in caplog.messages if message.startswith("stack of task deep: ")]
    calls = [place.split()[0] for place in stack.removeprefix("stack of task deep: ").split(" in ")]
    assert calls == ["asyncio.locks.Event.wait", *["test_diagnostics.wait_nested"] * 11]
    assert " in test_diagnostics.wait_nested (bootstrap/test_diagnostics.py:" in stack


@pytest.mark.parametrize(
    ("running", "expected", "omission"),
    [
        (200, 200, None),
        (201, 200, "omitted the stacks of 1 more tasks"),
        (203, 200, "omitted the stacks of 3 more tasks"),
    ],
)
async def test_task_stacks_are_limited(
    running: int, expected: int, omission: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    others = len(asyncio.all_tasks())
    until = asyncio.Event()
    tasks = [asyncio.create_task(wait_nested(0, until)) for _ in range(running - others)]
    await asyncio.sleep(0)
    log_stacks()
    until.set()
    await asyncio.gather(*tasks)
    assert sum(message.startswith("stack of task ") for message in caplog.messages) == expected
    assert [message for message in caplog.messages if "more tasks" in message] == ([omission] if omission else [])
