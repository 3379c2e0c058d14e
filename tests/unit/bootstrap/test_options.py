"""Flags with several values, and logs of stacks."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from pilot.bootstrap.diagnostics import log_stacks
from pilot.bootstrap.options import ListenAddresses, check_sources, parse_addresses, parse_aliases
from pilot.lib.flags import FlagError
from pilot.lib.start_error import StartError
from pilot.settings.parse import load
from pilot.settings.process import IngestSettings
from pilot.xds.net.listen_address import Address

FLAGS = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")


def addresses(**flags: object) -> ListenAddresses:
    return parse_addresses(load([f"--{name}={value}" for name, value in flags.items()], {}).settings)


def test_each_port_has_its_own_address() -> None:
    assert addresses() == ListenAddresses(
        http=Address("", 8080),
        grpc=Address("", 15010),
        monitoring=Address("", 15014),
        secure=Address("", 15012),
        webhooks=Address("", 15017),
        controlz=Address("127.0.0.1", 9876),
    )
    flags = {flag: f"host-{number}:{number}" for number, flag in enumerate(FLAGS)}
    assert addresses(**flags, ctrlz_address="*", ctrlz_port=65535) == ListenAddresses(
        Address("host-0", 0),
        Address("host-1", 1),
        Address("host-2", 2),
        Address("host-3", 3),
        Address("host-4", 4),
        Address("", 65535),
    )
    assert addresses(**dict.fromkeys(FLAGS, ""), ctrlz_port=0) == ListenAddresses(None, None, None, None, None, None)


@pytest.mark.parametrize("flag", FLAGS)
def test_invalid_address_error_names_the_flag(flag: str) -> None:
    with pytest.raises(FlagError, match=f"^invalid argument for --{flag}: '15010' is not host:port or :port$"):
        addresses(**{flag: "15010"})


@pytest.mark.parametrize("port", [-1, 65536])
def test_invalid_controlz_port_is_rejected(port: int) -> None:
    with pytest.raises(FlagError, match=f"^invalid argument for --ctrlz_port: {port} is not a port$"):
        addresses(ctrlz_port=port)


def test_aliases_are_unique_per_cluster() -> None:
    assert parse_aliases([]) == {}
    assert parse_aliases(["a=one", "b=two=2"]) == {"a": "one", "b": "two=2"}
    with pytest.raises(
        FlagError, match=r"^invalid argument for --clusterAliases: cluster 'one' has more than one alias$"
    ):
        parse_aliases(["a=one", "b=one"])
    for alias in ("one", "=one", "one=", "="):
        with pytest.raises(FlagError, match=f"^invalid argument for --clusterAliases: '{alias}' is not alias=cluster$"):
            parse_aliases([alias])


def test_only_the_kubernetes_registry_is_accepted() -> None:
    check_sources(IngestSettings())
    for registries in ((), ("Consul",), ("Kubernetes", "Mock")):
        with pytest.raises(
            StartError, match=f"^--registries: unknown registry '{','.join(registries)}', expected Kubernetes$"
        ):
            check_sources(IngestSettings(registries=registries))


# -- stacks ------------------------------------------------------------------------------------------------------------


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
    assert (len(calls), calls[-1]) == (12, "test_options.block_nested")
    assert calls[0] != "test_options.block_nested", "the innermost call is the wait of the event"
    [stack] = [message for message in caplog.messages if message.startswith("stack of task deep: ")]
    calls = [place.split()[0] for place in stack.removeprefix("stack of task deep: ").split(" in ")]
    assert calls == ["asyncio.locks.Event.wait", *["test_options.wait_nested"] * 11]
    assert " in test_options.wait_nested (bootstrap/test_options.py:" in stack


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
