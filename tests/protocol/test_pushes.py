"""What is counted and told of pushes, and of streams that end in the middle of one."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from grpc import aio

from pilot.lib.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.tables.database import Mesh
from pilot.xds.ads import SERVICE
from pilot.xds.push.discovery import Discovery, log_outcome
from pilot.xds.push.event_progress import EventOutcome
from pilot.xds.push.pusher import Pushed
from testing.clients.ads import NODE, Client, Server, plan, serving


async def test_a_proxy_whose_turn_came_has_converged_if_it_was_sent_something() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.ask("cds")
        await client.ask("cds", nonce=await client.gets("cds", "a"))
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
        await client.gets("cds", "a")
        await server.eventually(lambda: server.metric("pilot_proxy_convergence_time_count 2"))


async def test_endpoints_that_follow_their_clusters_are_counted_as_dependent() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        server.set("eds", a="1")
        await client.ask("cds")
        await client.ask("cds", nonce=await client.gets("cds", "a"))
        await client.ask("eds", "a")
        await client.ask("eds", nonce=await client.gets("eds", "a"))
        server.set("cds", a="2")
        await client.ask("cds", nonce=await client.gets("cds", "a"))
        await client.gets("eds", "a")
        assert server.metric('pilot_push_triggers{type="depdendentresource"} 1')
        assert server.metric('pilot_push_triggers{type="config"} 1')


async def test_what_is_as_it_was_read_last_is_not_read_again() -> None:
    async with (
        serving() as server,
        Client(server) as client,
        Client(server, node_id=NODE.replace("pod", "pad")) as other,
    ):
        server.set("cds", a="1")
        for one in (client, other):
            await one.ask("cds")
            await one.ask("cds", nonce=await one.gets("cds", "a"))
        await server.eventually(lambda: all(c.is_idle for c in server.discovery.connections()))
        hits, misses = server.discovery.cache_reads
        assert misses == 1, "both follow one feed"
        assert hits > 0
        server.set("cds", a="2")
        for one in (client, other):
            await one.gets("cds", "a")
        await server.eventually(lambda: all(c.is_idle for c in server.discovery.connections()))
        assert server.discovery.cache_reads[1] == 2
        assert server.discovery.cache_reads[0] > hits


async def test_only_who_counts_what_is_kept_counts_what_is_given_up() -> None:
    async with serving() as server:
        server.discovery.clear_cache()
        assert not server.metric('xds_cache_evictions{type="clear"} 1')
        server.discovery.counts_cache = True
        server.discovery.clear_cache()
        assert server.metric('xds_cache_evictions{type="clear"} 1')


async def test_a_push_is_told_with_the_events_that_it_follows_from() -> None:
    told: list[Pushed] = []
    async with serving(on_push=told.append) as server, Client(server) as client:
        server.set("cds", a="1")
        await client.ask("cds")
        await client.ask("cds", nonce=await client.gets("cds", "a"))
        (connection,) = server.discovery.connections()
        await server.eventually(
            lambda: connection.is_idle and connection.subscriptions[BY_SHORT_NAME["cds"]].nonce_acked
        )
        server.discovery.wake(server.db.commit([(server.db.mesh, "cds/all", {"a": "2"})]), {"config": 1}, 7)
        response = await client.take()
        await server.eventually(lambda: told)
        (pushed,) = told
        assert (pushed.events, pushed.type_url, pushed.size) == ((7,), BY_SHORT_NAME["cds"], response.ByteSize())
        assert pushed.began <= pushed.encoded <= pushed.written


def test_the_outcome_of_an_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    discovery = Discovery(Mesh(), Metrics(), plan, linger=0.0)
    with caplog.at_level(logging.INFO, "pilot.ads"):
        log_outcome(EventOutcome(7, 12, 5, 4, 3, 2.25))
        discovery.progress.begin(8, 1)
        discovery.progress.count_disconnect((8,))
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "Push event[7] of 12 proxies: acknowledged:5 nacked:4 disconnected:3 after 2.250s"
    assert second.startswith("Push event[8] of 1 proxies: acknowledged:0 nacked:0 disconnected:1 after ")


class Call:
    """A call whose peer asks for all clusters, and to whom nothing can be written."""

    def __init__(self, error: Exception, gone: bool) -> None:
        self._error, self._gone = error, gone
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=BY_SHORT_NAME["cds"])
        request.node.id = NODE
        self._requests = [request.SerializeToString()]
        self.status: tuple[Any, str] | None = None

    def peer(self) -> str:
        return "ipv4:10.0.0.1:99"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def cancelled(self) -> bool:
        return self._gone

    async def read(self) -> Any:
        if self._requests:
            return self._requests.pop()
        return await asyncio.Event().wait()

    async def write(self, _: bytes) -> None:
        raise self._error

    async def abort(self, code: Any, details: str) -> None:
        self.status = code, details


@pytest.mark.parametrize(
    ("error", "gone", "status"),
    [
        (OSError("a bug"), False, (grpc.StatusCode.INTERNAL, "internal error")),
        (OSError("a bug"), True, None),
        (aio.InternalError("the call is over"), False, None),
        (aio.InternalError("the call is over"), True, None),
    ],
)
async def test_a_peer_that_went_while_it_was_written_to_is_no_error_of_ours(
    error: Exception, gone: bool, status: tuple[Any, str] | None
) -> None:
    class Details:
        method, invocation_metadata = f"/{SERVICE}/DeltaAggregatedResources", ()

    server, call = Server(), Call(error, gone)
    server.set("cds", a="1")
    await server.ads.handlers().service(Details).stream_stream(None, call)
    assert call.status == status
    assert server.metric("pilot_total_xds_internal_errors 1") is (status is not None)
    assert not server.discovery.connections()
