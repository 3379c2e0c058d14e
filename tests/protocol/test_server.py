"""The xDS server over gRPC connections."""

from __future__ import annotations

import asyncio

import grpc
import msgspec
import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME, HEALTH, short_name
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.push.connection import Connection
from pilot.xds.push.discovery import Discovery
from pilot.xds.push.write_limiter import WriteLimits
from pilot.xds.server import drain
from pilot.xds.session.delta import DeltaSession
from testing.clients.ads import NODE, Client, Server, plan, serving

BOTH_VARIANTS = pytest.mark.parametrize("variant", ["sotw", "delta"])


@BOTH_VARIANTS
async def test_proxy_gets_its_configuration_and_changes(variant: str) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1", s="1")
        server.set("cds/ns", x="1")
        server.set("eds", a="1")
        await client.request("cds")
        nonce = await client.expect("cds", "a", "s", "x")
        assert nonce.startswith(server.discovery.version)
        assert len(nonce) == len(server.discovery.version) + 36
        await client.request("cds", nonce=nonce)
        await client.request("eds", "a")
        await client.expect("eds", "a")
        assert server.set("cds", a="1", s="2") == 1
        await client.expect("cds", *(["s"] if variant == "delta" else ["a", "s", "x"]))


async def test_equal_result_is_not_sent() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.expect("cds", "a")
        server.set("cds", a="1")
        server.set("lds", x="1")
        await client.request("lds")
        await client.expect("lds", "x")


async def test_equal_proxies_share_derivations_and_messages() -> None:
    async with (
        serving() as server,
        Client(server, node_id=NODE) as one,
        Client(server, node_id=NODE.replace("pod", "pad")) as two,
    ):
        server.set("rds", r="1")
        for client in (one, two):
            await client.request("rds", "r")
            await client.expect("rds", "r")
        runs = server.db.runs
        server.set("rds", r="2")
        assert await one.expect("rds", "r") == await two.expect("rds", "r")
        assert server.db.runs - runs == 2  # the row and the group


async def test_endpoints_are_sent_after_the_cluster_is_acknowledged() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        server.set("eds", a="1")
        await client.request("cds")
        await client.expect("cds", "a")
        await client.request("eds", "a")
        await client.expect("eds", "a")
        server.set("cds", a="2")
        nonce = await client.expect("cds", "a")
        await client.request("cds", nonce=nonce)
        await client.expect("eds", "a")


@BOTH_VARIANTS
@pytest.mark.parametrize(
    ("node_id", "metadata", "text"),
    [
        ("", {}, "missing node information"),
        ("sidecar~10.0.0.1~pod.ns", {}, "missing parts in the service node"),
        ("mainframe~10.0.0.1~pod.ns~ns.svc", {}, "invalid node type"),
        ("sidecar~nowhere~pod.ns~ns.svc", {}, "no valid IP address"),
        (NODE, {"LABELS": "app=a"}, "node metadata LABELS must be a map of strings"),
        (NODE, {"NAMESPACE": 1}, "node metadata NAMESPACE must be a string"),
    ],
)
async def test_invalid_node_is_refused(variant: str, node_id: str, metadata: dict[str, object], text: str) -> None:
    async with serving() as server, Client(server, variant, node_id, **metadata) as client:
        await client.request("cds")
        code, details = await client.end_status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert text in details
        assert not server.discovery.connections()


@BOTH_VARIANTS
async def test_names_of_wildcard_resources_are_tracked_only_for_delta(variant: str) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1", b="1")
        await client.request("cds", "*")
        await client.receive()
        (connection,) = server.discovery.connections()
        assert sorted(connection.subscriptions[BY_SHORT_NAME["cds"]].wildcard_names) == (
            ["a", "b"] if variant == "delta" else []
        )


async def test_ztunnel_is_refused_without_ambient() -> None:
    async with (
        serving() as server,
        Client(server, "delta", "ztunnel~10.0.0.1~ztunnel-1.istio-system~istio-system.svc.cluster.local") as client,
    ):
        await client.request("cds")
        code, details = await client.end_status()
        assert (code, "ambient" in details) == (grpc.StatusCode.UNKNOWN, True)
        assert not server.discovery.connections()


async def test_malformed_request_ends_the_stream() -> None:
    async with serving() as server, Client(server) as client:
        await client.call.write(b"\xff\xff")
        assert (await client.end_status())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_health_report_before_the_first_request_is_dropped() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request(HEALTH)
        client.first = True
        await client.request("cds")
        await client.expect("cds", "a")
        assert [*server.discovery.connections()[0].subscriptions] == [BY_SHORT_NAME["cds"]]


async def test_connection_state_for_debug_pages() -> None:
    async with serving() as server, Client(server, ISTIO_VERSION="1.30", CLUSTER_ID="alias") as client:
        server.set("cds", a="1")
        await client.request("cds")
        nonce = await client.expect("cds", "a")
        (connection,) = server.discovery.connections()
        assert connection.id == "pod.ns-1"
        assert connection.proxy_key == NODE
        assert connection.address.startswith("127.0.0.1:")
        assert connection.proxy.cluster_id == "Kubernetes"
        subscription = connection.subscriptions[BY_SHORT_NAME["cds"]]
        assert (
            set(subscription.names),
            subscription.nonce_sent,
            subscription.nonce_acked,
            subscription.last_error,
        ) == ({"*"}, nonce, "", "")
        assert subscription.sent_at > 0
        await client.request("cds", nonce=nonce)
        await server.eventually(lambda: subscription.nonce_acked == nonce)
        assert server.metric('pilot_xds{version="1.30"} 1')
        await server.eventually(lambda: server.metric('pilot_xds_pushes{type="cds"} 1'))


async def test_push_all() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        first = await client.expect("cds", "a")
        assert server.discovery.push_all() == 1
        assert await client.expect("cds", "a") != first


async def test_disconnect() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.expect("cds", "a")
        server.discovery.disconnect(server.discovery.connections()[0].id)
        assert await client.end_status() == (grpc.StatusCode.OK, "")
        assert not server.discovery.connections()


async def test_half_closed_stream_ends_after_its_last_response() -> None:
    async with serving() as server, Client(server) as client:
        server.set("rds", r="x" * 1_000_000)
        await client.request("rds", "r")
        await server.eventually(lambda: len(server.pusher.write_limiter))
        await client.call.done_writing()
        await client.expect("rds", "r")
        assert await client.end_status() == (grpc.StatusCode.OK, "")
        assert not server.discovery.connections()


async def test_internal_error_ends_only_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.expect("cds", "a")
        monkeypatch.setattr(server.discovery, "next_response", lambda connection: 1 / 0)
        server.set("cds", a="2")
        assert await client.end_status() == (grpc.StatusCode.INTERNAL, "internal error")
        assert server.metric("pilot_total_xds_internal_errors 1")


async def test_internal_error_at_stream_end_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as server:
        server.set("cds", a="1")
        monkeypatch.setattr(server.discovery, "remove", lambda _: 1 / 0)
        async with Client(server) as client:
            await client.request("cds")
            await client.expect("cds", "a")
        await server.eventually(lambda: server.metric("pilot_total_xds_internal_errors 1"))


def make_connection(server: Server, *types: str) -> Connection:
    """Return a connection without a stream that subscribes to all resources of the types. One response is due for each."""
    session = DeltaSession(server.discovery.name_sets)
    for kind in types:
        server.set(kind, a="1")
        session.receive(discovery_pb2.DeltaDiscoveryRequest(type_url=BY_SHORT_NAME[kind]))
    proxy = Proxy(
        type=NodeType.SIDECAR, id="pod.ns", ips=("10.0.0.1",), dns_domain="ns.svc", namespace="ns", metadata={}
    )
    connection = server.discovery.connect(NODE, proxy, "10.0.0.1:99", session)
    connection.mark_dirty(0.0, {"config": 1})
    return connection


async def test_failed_write_is_counted_as_an_error() -> None:
    async def fail(_: bytes) -> None:
        raise OSError("cannot be written")

    async with serving() as server:
        connection = make_connection(server, "cds")
        with pytest.raises(OSError, match="cannot be written"):
            await server.pusher.serve(connection, fail)
        assert server.metric('pilot_xds_pushes{type="cds_senderr"} 1')
        assert not server.metric('pilot_xds_pushes{type="cds"} 1')
        assert len(server.pusher.write_limiter) == 0


async def test_disconnected_proxy_is_swept() -> None:
    async with serving() as server:
        server.set("cds", a="1")
        nodes = len(server.db)
        async with Client(server) as client:
            await client.request("cds")
            await client.expect("cds", "a")
        await server.eventually(lambda: not server.discovery.connections())
        assert server.discovery.sweep() == 1
        assert len(server.db) == nodes
        assert server.db.proxies.peek(NODE) is None
        assert server.metric('pilot_xds{version=""} 0')


async def test_reconnecting_proxy_reuses_derivations() -> None:
    async with serving(linger=60.0) as server:
        server.set("cds", a="1")
        runs = []
        for _ in range(2):
            async with Client(server) as client:
                await client.request("cds")
                await client.expect("cds", "a")
            await server.eventually(lambda: not server.discovery.connections())
            assert server.discovery.sweep() == 0
            runs.append(server.db.runs)
        assert runs[0] == runs[1]


async def test_failed_derivation_keeps_the_last_valid_value() -> None:
    async with serving() as server, Client(server) as old, Client(server, node_id=NODE.replace("pod", "new")) as new:
        server.set("cds", a="1")
        server.set("lds", x="1")
        await old.request("cds")
        await old.expect("cds", "a")
        server.set("cds", a="fail")
        server.set("rds", r="fail")
        for client in (old, new):
            await client.request("rds", "r")
            await client.request("lds")
            await client.expect("lds", "x")
        await new.request("cds")
        await new.expect("cds", "a")
        server.set("rds", r="1")
        server.set("cds", a="2")
        for client in (old, new):
            assert {(await client.receive()).type_url, (await client.receive()).type_url} == {
                BY_SHORT_NAME["cds"],
                BY_SHORT_NAME["rds"],
            }


async def test_changed_plan_is_pushed() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        server.set("cds/ns", x="1")
        server.set("cds/other", y="1")
        await client.request("cds")
        await client.expect("cds", "a", "x")
        server.set("instead/ns", of="other")
        await client.expect("cds", "y", removed=("x",))
        server.set("cds/ns", x="2")
        server.set("cds/other", y="2")
        await client.expect("cds", "y")


async def test_duplicate_node_id_does_not_affect_the_first_stream() -> None:
    async with serving(linger=60.0) as server, Client(server) as client:
        server.set("cds", a="1")
        server.set("cds/ns", x="1")
        server.set("cds/other", y="1")
        await client.request("cds")
        await client.expect("cds", "a", "x")
        async with Client(server, NAMESPACE="other") as thief:
            await thief.request("cds")
            await thief.expect("cds", "a", "y")
            server.set("cds/ns", x="2")
            await client.expect("cds", "x")
            server.set("cds/other", y="2")
            await thief.expect("cds", "y")
        await server.eventually(lambda: len(server.discovery.connections()) == 1)
        assert {row.namespace for _, row in server.db.proxies.rows()} == {"ns", "other"}
        server.discovery._linger = 0.0
        assert server.discovery.sweep() == 1
        assert [row.namespace for _, row in server.db.proxies.rows()] == ["ns"]
        server.set("cds/ns", x="3")
        await client.expect("cds", "x")


def test_proxy_rows_are_shared_by_equal_streams_with_the_same_identity() -> None:
    db = Mesh()
    discovery = Discovery(db, Metrics(), plan, linger=0.0)
    proxy = Proxy(
        type=NodeType.SIDECAR,
        id="pod.ns",
        ips=("10.0.0.1",),
        dns_domain="ns.svc",
        namespace="ns",
        metadata={"LABELS": {"a": "b"}},
    )
    other = Proxy(
        type=NodeType.SIDECAR,
        id="pod.ns",
        ips=("10.0.0.1",),
        dns_domain="ns.svc",
        namespace="ns",
        metadata={"LABELS": {"a": "c"}},
    )

    def connect(connected: Proxy, identity: str = "") -> Connection:
        authenticated = msgspec.structs.replace(connected, identity=identity)
        return discovery.connect(NODE, authenticated, "10.0.0.1:99", DeltaSession(discovery.name_sets))

    first, equal, verified, changed = connect(proxy), connect(proxy), connect(proxy, "spiffe://a"), connect(other)
    assert first.proxy_key == equal.proxy_key == NODE
    assert len({first.proxy_key, verified.proxy_key, changed.proxy_key}) == 3
    assert (first.peer, verified.peer) == ("10.0.0.1", "spiffe://a")
    assert db.proxies.peek(first.proxy_key) == proxy
    assert [row.identity for _, row in db.proxies.rows() if row.identity] == ["spiffe://a"], (
        "the row has the verified identity"
    )
    assert db.proxies.peek(changed.proxy_key) == other
    for connection in (first, verified):
        discovery.remove(connection)
    assert discovery.sweep() == 1, "another stream still uses the first row"
    assert db.proxies.peek(NODE) == proxy
    reconnected = connect(proxy, "spiffe://a")
    assert reconnected.proxy_key == verified.proxy_key


async def test_stream_rate_limit() -> None:
    async with serving(rate=0.5) as server, Client(server) as one:
        server.set("cds", a="1")
        await one.request("cds")
        await one.expect("cds", "a")
        async with Client(server) as two:
            assert (await two.end_status())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_drain_delivers_pending_responses_and_ends() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.expect("cds", "a")
        server.set("cds", a="2")
        async with asyncio.timeout(10):
            await drain(server.grpc, server.ads.connections, 60.0)
        await client.expect("cds", "a")
        assert (await client.end_status())[0] is grpc.StatusCode.OK


async def test_drain_completes_a_push_in_progress() -> None:
    responses: list[str] = []
    may_finish = asyncio.Event()

    async def write(message: bytes) -> None:
        responses.append(short_name(discovery_pb2.DeltaDiscoveryResponse.FromString(message).type_url))
        await may_finish.wait()

    async with serving() as server:
        connection = make_connection(server, "cds", "lds")
        connection.end = connection.finish
        writer = asyncio.create_task(server.pusher.serve(connection, write))
        await server.eventually(lambda: responses)
        await drain(server.grpc, [connection], 60.0)  # checks at least once
        may_finish.set()
        await server.eventually(lambda: not connection.busy)
        assert responses == ["cds", "lds"]
        connection.finish()
        await writer


async def test_drain_aborts_streams_that_do_not_read() -> None:
    async with serving() as server, Client(server) as client:
        server.set("rds", r="x" * 4_000_000)
        await client.request("rds", "r")
        await server.eventually(lambda: len(server.pusher.write_limiter))
        async with asyncio.timeout(10):
            await drain(server.grpc, server.ads.connections, 0.1)
            await server.eventually(lambda: not server.discovery.connections())


async def test_bytes_in_flight_are_bounded_while_proxies_do_not_read() -> None:
    size, limit = 1_000_000, 8_000_000
    async with serving(limits=WriteLimits(limit, patience=60.0, timeout=600.0)) as server:
        limiter = server.pusher.write_limiter
        server.set("rds", r="x" * size)
        server.set("lds", l="small")
        clients = [Client(server, node_id=NODE.replace("pod", f"pod-{i}")) for i in range(12)]
        for client in clients:
            await client.request("rds", "r")
        await server.eventually(lambda: limiter.waiting == 7)
        assert size < limiter.moving.used <= limit * 3 // 4, "a peer gets three quarters of the room"
        async with Client(server) as other:  # small responses do not wait
            await other.request("lds")
            await other.expect("lds", "l")
        for client in clients[9:]:  # both waiting and active ones
            await client.__aexit__()
        await asyncio.gather(*(client.expect("rds", "r") for client in clients[:9]))
        await server.eventually(lambda: (limiter.moving.used, len(limiter), limiter.waiting) == (0, 0, 0))
        for client in clients[:9]:
            await client.__aexit__()


async def test_slow_readers_do_not_starve_others() -> None:
    size = 1_000_000
    async with (
        serving(limits=WriteLimits(4 * size + 4096, 100 * size, patience=0.01)) as server,
        Client(server) as healthy,
    ):
        server.set("rds", r="x" * size)
        server.set("lds", l="small")
        await healthy.request("lds")
        await healthy.expect("lds", "l")
        stuck = [Client(server, node_id=NODE.replace("pod", f"pod-{i}")) for i in range(10)]
        for client in stuck:
            await client.request("rds", "r")
        await server.eventually(lambda: server.pusher.write_limiter.stalled.used > 9 * size)
        await healthy.request("rds", "r")
        await healthy.expect("rds", "r")
        await server.eventually(lambda: server.pusher.write_limiter.moving.used == 0)
        assert len(server.discovery.connections()) == 11, "stalled writes have enough room, so no stream is ended"
        for client in stuck:
            await client.__aexit__()


async def test_excess_stalled_streams_are_ended() -> None:
    size = 1_000_000
    async with serving(limits=WriteLimits(2 * size + 4096, 4 * size + 4096, patience=0.01)) as server:
        server.set("rds", r="x" * size)
        stuck = [Client(server, node_id=NODE.replace("pod", f"pod-{i}")) for i in range(6)]
        for client in stuck:
            await client.request("rds", "r")
        await server.eventually(lambda: server.metric("pilot_xds_write_timeout 2"))
        await server.eventually(lambda: len(server.discovery.connections()) == 4)
        remaining = {connection.proxy_key for connection in server.discovery.connections()}
        for client in stuck:
            if client.node_id not in remaining:
                assert (await client.end_status())[0] is not grpc.StatusCode.OK
        assert server.pusher.write_limiter.stalled.used <= 3 * size + 4096, "a peer gets three quarters of the room"
        for client in stuck:
            await client.__aexit__()


async def test_stream_that_does_not_read_times_out() -> None:
    async with serving(limits=WriteLimits(timeout=0.1)) as server, Client(server) as client:
        server.set("rds", r="x" * 4_000_000)
        await client.request("rds", "r")
        # Checks the counter, because the write may start and be aborted between two checks.
        await server.eventually(lambda: server.metric("pilot_xds_write_timeout 1"))
        await server.eventually(lambda: not server.discovery.connections() and not len(server.pusher.write_limiter))
        assert (await client.end_status())[0] is not grpc.StatusCode.OK


async def test_waiting_response_has_the_latest_version() -> None:
    size = 100_000
    limits = WriteLimits(size, timeout=600.0)
    async with (
        serving(limits=limits) as server,
        Client(server) as slow,
        Client(server, node_id=NODE.replace("pod", "pad")) as waiting,
    ):
        server.set("rds", r="1" * size)
        await slow.request("rds", "r")
        await server.eventually(lambda: len(server.pusher.write_limiter))
        await waiting.request("rds", "r")
        await server.eventually(lambda: server.pusher.write_limiter.waiting == 1)
        server.set("rds", r="2" * size)
        await slow.expect("rds", "r")
        (item,) = (await waiting.receive()).resources
        assert cluster_pb2.Cluster.FromString(item.resource.value).alt_stat_name == "2" * size
