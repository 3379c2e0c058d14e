"""Flags that say several things at once, and how processes are told of the stacks of their threads and tasks."""

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


def test_every_port_has_an_address_of_its_own() -> None:
    assert addresses() == ListenAddresses(
        http=Address("", 8080),
        grpc=Address("", 15010),
        monitoring=Address("", 15014),
        secure=Address("", 15012),
        webhooks=Address("", 15017),
        controlz=Address("127.0.0.1", 9876),
    )
    given = {flag: f"host-{number}:{number}" for number, flag in enumerate(FLAGS)}
    assert addresses(**given, ctrlz_address="*", ctrlz_port=65535) == ListenAddresses(
        Address("host-0", 0),
        Address("host-1", 1),
        Address("host-2", 2),
        Address("host-3", 3),
        Address("host-4", 4),
        Address("", 65535),
    )
    assert addresses(**dict.fromkeys(FLAGS, ""), ctrlz_port=0) == ListenAddresses(None, None, None, None, None, None)


@pytest.mark.parametrize("flag", FLAGS)
def test_an_address_that_is_none_is_named_by_its_flag(flag: str) -> None:
    with pytest.raises(FlagError, match=f"^invalid argument for --{flag}: '15010' is not host:port or :port$"):
        addresses(**{flag: "15010"})


@pytest.mark.parametrize("port", [-1, 65536])
def test_controlz_listens_on_a_port_that_there_is(port: int) -> None:
    with pytest.raises(FlagError, match=f"^invalid argument for --ctrlz_port: {port} is not a port$"):
        addresses(ctrlz_port=port)


def test_clusters_have_one_alias_each() -> None:
    assert parse_aliases([]) == {}
    assert parse_aliases(["a=one", "b=two=2"]) == {"a": "one", "b": "two=2"}
    with pytest.raises(
        FlagError, match=r"^invalid argument for --clusterAliases: cluster 'one' has more than one alias$"
    ):
        parse_aliases(["a=one", "b=one"])
    for wrong in ("one", "=one", "one=", "="):
        with pytest.raises(FlagError, match=f"^invalid argument for --clusterAliases: '{wrong}' is not alias=cluster$"):
            parse_aliases([wrong])


def test_kubernetes_is_the_only_registry() -> None:
    check_sources(IngestSettings())
    for registries in ((), ("Consul",), ("Kubernetes", "Mock")):
        with pytest.raises(
            StartError, match=f"^--registries: unknown registry '{','.join(registries)}', expected Kubernetes$"
        ):
            check_sources(IngestSettings(registries=registries))


# -- stacks ------------------------------------------------------------------------------------------------------------


async def wait_deep(depth: int, until: asyncio.Event) -> None:
    if depth:
        await wait_deep(depth - 1, until)
    else:
        await until.wait()


def hold_deep(depth: int, entered: threading.Event, until: threading.Event) -> None:
    if depth:
        hold_deep(depth - 1, entered, until)
    else:
        entered.set()
        until.wait(30)


async def test_stacks_say_twelve_calls_the_innermost_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    until, entered, leave = asyncio.Event(), threading.Event(), threading.Event()
    task = asyncio.create_task(wait_deep(20, until), name="deep")
    thread = threading.Thread(target=hold_deep, args=(20, entered, leave), name="deeper")
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
    [told] = [message for message in caplog.messages if message.startswith("stack of thread deeper: ")]
    calls = [place.split()[0] for place in told.removeprefix("stack of thread deeper: ").split(" in ")]
    assert (len(calls), calls[-1]) == (12, "test_options.hold_deep")
    assert calls[0] != "test_options.hold_deep", "it waits in an event"
    [told] = [message for message in caplog.messages if message.startswith("stack of task deep: ")]
    calls = [place.split()[0] for place in told.removeprefix("stack of task deep: ").split(" in ")]
    assert calls == ["asyncio.locks.Event.wait", *["test_options.wait_deep"] * 11]
    assert " in test_options.wait_deep (bootstrap/test_options.py:" in told


@pytest.mark.parametrize(
    ("there", "told", "left"),
    [
        (200, 200, None),
        (201, 200, "omitted the stacks of 1 more tasks"),
        (203, 200, "omitted the stacks of 3 more tasks"),
    ],
)
async def test_only_so_many_tasks_are_told(
    there: int, told: int, left: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    others = len(asyncio.all_tasks())
    until = asyncio.Event()
    tasks = [asyncio.create_task(wait_deep(0, until)) for _ in range(there - others)]
    await asyncio.sleep(0)
    log_stacks()
    until.set()
    await asyncio.gather(*tasks)
    assert sum(message.startswith("stack of task ") for message in caplog.messages) == told
    assert [message for message in caplog.messages if "more tasks" in message] == ([left] if left else [])
