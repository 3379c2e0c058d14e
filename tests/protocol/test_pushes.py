"""Metrics and logs of pushes, and streams that end during a push."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from grpc import aio

from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.tables.database import Mesh
from pilot.xds.ads import SERVICE
from pilot.xds.push.discovery import Discovery, log_outcome
from pilot.xds.push.event_progress import EventOutcome
from pilot.xds.push.pusher import Pushed
from testing.clients.ads import NODE, Client, Server, plan, serving


async def test_convergence_is_counted_only_for_sent_changes() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.request("cds", nonce=await client.expect("cds", "a"))
        (connection,) = server.discovery.connections()
        await server.eventually(
            lambda: connection.is_idle and connection.subscriptions[BY_SHORT_NAME["cds"]].nonce_acked
        )
        assert server.metric("pilot_proxy_convergence_time_count 1")
        turns = connection.activity
        server.discovery.wake(list(connection.nodes()), {"config": 1})
        await server.eventually(lambda: server.metric("pilot_proxy_queue_time_count 2") and connection.is_idle)
        assert server.metric("pilot_proxy_convergence_time_count 1"), "nothing had changed"
        assert connection.activity == turns
        server.set("cds", a="2")
        await client.expect("cds", "a")
        await server.eventually(lambda: server.metric("pilot_proxy_convergence_time_count 2"))


async def test_pusher_is_idle_while_a_client_reads_slowly_but_not_while_responses_are_due() -> None:
    """Portions of large changes wait for computations, and not for clients that do not read."""
    async with serving() as server, Client(server) as client:
        assert server.pusher.is_idle
        server.set("cds", a="v" * (16 << 20))
        await client.request("cds")
        await server.eventually(
            lambda: server.pusher.is_idle and any(not one.is_idle for one in server.discovery.connections())
        )
        nonce = await client.expect("cds", "a")
        await client.request("cds", nonce=nonce)
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: connection.is_idle)
        server.set("cds", a="2")
        assert not server.pusher.is_idle
        await client.expect("cds", "a")
        await server.eventually(lambda: server.pusher.is_idle)


async def test_endpoints_sent_after_clusters_are_dependent_pushes() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        server.set("eds", a="1")
        await client.request("cds")
        await client.request("cds", nonce=await client.expect("cds", "a"))
        await client.request("eds", "a")
        await client.request("eds", nonce=await client.expect("eds", "a"))
        server.set("cds", a="2")
        await client.request("cds", nonce=await client.expect("cds", "a"))
        await client.expect("eds", "a")
        assert server.metric('pilot_push_triggers{type="depdendentresource"} 1')
        assert server.metric('pilot_push_triggers{type="config"} 1')


async def test_unchanged_state_is_read_from_the_cache() -> None:
    async with (
        serving() as server,
        Client(server) as client,
        Client(server, node_id=NODE.replace("pod", "pad")) as other,
    ):
        server.set("cds", a="1")
        for reader in (client, other):
            await reader.request("cds")
            await reader.request("cds", nonce=await reader.expect("cds", "a"))
        await server.eventually(lambda: all(c.is_idle for c in server.discovery.connections()))
        hits, misses = server.discovery.cache_reads
        assert misses == 1, "both proxies share a feed"
        assert hits > 0
        server.set("cds", a="2")
        for reader in (client, other):
            await reader.expect("cds", "a")
        await server.eventually(lambda: all(c.is_idle for c in server.discovery.connections()))
        assert server.discovery.cache_reads[1] == 2
        assert server.discovery.cache_reads[0] > hits


async def test_cache_evictions_are_counted_only_with_cache_metrics() -> None:
    async with serving() as server:
        server.discovery.clear_cache()
        assert not server.metric('xds_cache_evictions{type="clear"} 1')
        server.discovery.counts_cache = True
        server.discovery.clear_cache()
        assert server.metric('xds_cache_evictions{type="clear"} 1')


async def test_push_is_reported_with_its_events() -> None:
    reports: list[Pushed] = []
    written: list[tuple[int, str, int]] = []
    record = lambda *message: written.append(message)  # noqa: E731
    async with serving(on_push=reports.append, on_written=record) as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.request("cds", nonce=await client.expect("cds", "a"))
        (connection,) = server.discovery.connections()
        await server.eventually(
            lambda: connection.is_idle and connection.subscriptions[BY_SHORT_NAME["cds"]].nonce_acked
        )
        assert [(pushed.events, event) for pushed, (event, _, _) in zip(reports, written, strict=True)] == [((), 0)]
        reports.clear()
        server.discovery.wake(server.db.commit([(server.db.mesh, "cds/all", {"a": "2"})]), {"config": 1}, 7)
        response = await client.receive()
        await server.eventually(lambda: reports)
        (pushed,) = reports
        assert (pushed.events, pushed.type_url) == ((7,), BY_SHORT_NAME["cds"])
        assert written[1:] == [(7, BY_SHORT_NAME["cds"], response.ByteSize())]
        assert pushed.size == response.ByteSize()
        assert pushed.began <= pushed.encoded <= pushed.written


def test_outcome_of_an_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    discovery = Discovery(Mesh(), Metrics(), plan, linger=0.0)
    with caplog.at_level(logging.INFO, "pilot.ads"):
        log_outcome(EventOutcome(7, 12, 5, 4, 3, 2.25))
        discovery.progress.begin(8, 1)
        discovery.progress.count_response((8,), "disconnected")
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "Push event[7] to 12 proxies: acknowledged:5 rejected:4 disconnected:3 unchanged:0 after 2.250s"
    assert second.startswith("Push event[8] to 1 proxies: acknowledged:0 rejected:0 disconnected:1 unchanged:0 after ")


class Call:
    """A gRPC call that requests all clusters and fails at each write."""

    def __init__(self, error: Exception, cancelled: bool) -> None:
        self._error, self._cancelled = error, cancelled
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=BY_SHORT_NAME["cds"])
        request.node.id = NODE
        self._requests = [request.SerializeToString()]
        self.status: tuple[Any, str] | None = None

    def peer(self) -> str:
        return "ipv4:10.0.0.1:99"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def cancelled(self) -> bool:
        return self._cancelled

    async def read(self) -> Any:
        if self._requests:
            return self._requests.pop()
        return await asyncio.Event().wait()

    async def write(self, _: bytes) -> None:
        raise self._error

    async def abort(self, code: Any, details: str) -> None:
        self.status = code, details


@pytest.mark.parametrize(
    ("error", "cancelled", "status"),
    [
        (OSError("a bug"), False, (grpc.StatusCode.INTERNAL, "internal error")),
        (OSError("a bug"), True, None),
        (aio.InternalError("the call is over"), False, None),
        (aio.InternalError("the call is over"), True, None),
    ],
)
async def test_disconnect_during_a_write_is_no_internal_error(
    error: Exception, cancelled: bool, status: tuple[Any, str] | None
) -> None:
    class Details:
        method, invocation_metadata = f"/{SERVICE}/DeltaAggregatedResources", ()

    server, call = Server(), Call(error, cancelled)
    server.set("cds", a="1")
    await server.ads.handlers().service(Details).stream_stream(None, call)
    assert call.status == status
    assert server.metric("pilot_total_xds_internal_errors 1") is (status is not None)
    assert not server.discovery.connections()
