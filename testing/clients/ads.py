"""An in-process ADS server with resources that tests set, and a client for single messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.derive import Derived, derived
from pilot.envoy.plans.resource_group import Group, PatchSide, ProxyPlan
from pilot.envoy.resource import Resource
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.mesh.tables.database import Mesh
from pilot.settings.process import ServeSettings
from pilot.xds.admission import DEFAULT_STREAM_LIMITS, Admission, StreamLimits
from pilot.xds.ads import SERVICE, Ads, AdsOptions
from pilot.xds.authn.identity import Authenticate, Caller, IdentityError, no_authentication
from pilot.xds.push.discovery import Discovery
from pilot.xds.push.pusher import Pushed, Pusher, ignore_written
from pilot.xds.push.write_limiter import DEFAULT_LIMITS, WriteLimits
from pilot.xds.server import make_server
from testing.clients.scripted_stream import resource

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1), ("grpc.http2.bdp_probe", 0)]
NODE = "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local"
SECONDS = 10.0
DEFAULT_SETTINGS = ServeSettings()


def open_channel(address: str) -> Any:
    """Return a channel with its own connection. It has no type, because the stubs of grpc lack some of its methods."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)


@derived
def resources(db: Mesh, short_type: str, scope: str) -> Mapping[str, Resource]:
    """Return the resources of the row "type/scope" of the table `mesh`, by name. The content "fail" raises an error."""
    contents: dict[str, str] = db.mesh.get(f"{short_type}/{scope}") or {}
    if "fail" in contents.values():
        raise ZeroDivisionError(short_type)
    return {name: resource(short_type, name, content) for name, content in contents.items()}


@derived
def plan(db: Mesh, node_id: str) -> ProxyPlan:
    """Return the plan of a proxy: shared resources, and the clusters of its namespace.

    The row "instead/namespace" names another namespace to take the clusters from.
    """
    proxy = db.proxies.get(node_id)
    if proxy is None:
        return ProxyPlan({})
    shared = {
        BY_SHORT_NAME[kind]: (Group(resources, (kind, "all"), PatchSide.NONE),) for kind in ("cds", "eds", "lds", "rds")
    }
    scope = (db.mesh.get(f"instead/{proxy.namespace}") or {}).get("of", proxy.namespace)
    return ProxyPlan(
        {
            **shared,
            BY_SHORT_NAME["cds"]: (*shared[BY_SHORT_NAME["cds"]], Group(resources, ("cds", scope), PatchSide.NONE)),
        }
    )


async def header_identities(caller: Caller) -> Sequence[str]:
    """Return the identities in the header "identities". The value "forged" is rejected."""
    identities = caller.header("identities")
    if identities == "forged":
        raise IdentityError("forged")
    return identities.split(",") if identities else ()


class Server:
    """A running ADS server. `set` changes its resources."""

    def __init__(
        self,
        limits: WriteLimits = DEFAULT_LIMITS,
        rate: float = 0.0,
        linger: float = 0.0,
        stream_limits: StreamLimits = DEFAULT_STREAM_LIMITS,
        settings: ServeSettings = DEFAULT_SETTINGS,
        plan: Derived[[str], ProxyPlan] = plan,
        authenticate: Authenticate = no_authentication,
        mesh: Mesh | None = None,
        on_push: Callable[[Pushed], None] | None = None,
        on_written: Callable[[int, str, int], None] = ignore_written,
        **more: Any,
    ) -> None:
        self.db, self.metrics = Mesh() if mesh is None else mesh, Metrics()
        self.discovery = Discovery(self.db, self.metrics, plan, linger)
        self.pusher = Pusher(self.discovery, self.metrics, limits, on_written, on_push=on_push)
        options = AdsOptions(Admission(rate), {"alias": "Kubernetes"}, stream_limits, authenticate=authenticate, **more)
        self.ads = Ads(self.discovery, self.pusher, self.metrics, options)
        self.grpc = make_server(settings, [self.ads.handlers()])
        self.port = self.grpc.add_insecure_port("127.0.0.1:0")

    def set(self, row: str, **contents: str) -> int:
        """Set the row "type/scope", and return the number of affected proxies."""
        key = row if "/" in row else f"{row}/all"
        return self.discovery.wake(self.db.commit([(self.db.mesh, key, contents)]), {"config": 1})

    def metric(self, line: str) -> bool:
        """Return whether the metrics contain a line."""
        return line in self.metrics.exposition().decode().splitlines()

    async def eventually(self, check: Any) -> None:
        async with asyncio.timeout(SECONDS):
            while not check():
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Server]:
    server = Server(**options)
    await server.grpc.start()
    try:
        yield server
    finally:
        await server.grpc.stop(None)


class Listening(Protocol):
    """A server to connect to."""

    @property
    def port(self) -> int: ...


class Client:
    """One stream. `request` sends a request, `receive` awaits a response."""

    def __init__(
        self, server: Listening, variant: str = "delta", node_id: str = NODE, identities: str = "", **metadata: Any
    ) -> None:
        """`identities` is sent in the header of that name."""
        self.delta, self.node_id, self.metadata = variant == "delta", node_id, metadata
        self.channel = open_channel(f"127.0.0.1:{server.port}")
        method = "DeltaAggregatedResources" if self.delta else "StreamAggregatedResources"
        self.call = self.channel.stream_stream(f"/{SERVICE}/{method}")(
            metadata=(("identities", identities),) if identities else ()
        )
        self.first = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.call.cancel()
        await self.channel.close()

    async def request(self, kind: str, *names: str, nonce: str = "") -> None:
        """Send a subscription or, with a nonce, an acknowledgement."""
        message_type: Any = discovery_pb2.DeltaDiscoveryRequest if self.delta else discovery_pb2.DiscoveryRequest
        request = message_type(type_url=BY_SHORT_NAME.get(kind, kind), response_nonce=nonce)
        (request.resource_names_subscribe if self.delta else request.resource_names).extend(names)
        if self.first:
            request.node.id = self.node_id
            request.node.metadata.update(self.metadata)
            self.first = False
        await self.call.write(request.SerializeToString())

    async def nack(self, kind: str, nonce: str, message: str) -> None:
        """Reject a response."""
        message_type: Any = discovery_pb2.DeltaDiscoveryRequest if self.delta else discovery_pb2.DiscoveryRequest
        request = message_type(type_url=BY_SHORT_NAME[kind], response_nonce=nonce)
        request.error_detail.code, request.error_detail.message = 13, message
        await self.call.write(request.SerializeToString())

    async def unsubscribe(self, kind: str, *names: str, nonce: str = "") -> None:
        """Unsubscribe from names, on a delta stream."""
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=BY_SHORT_NAME[kind], response_nonce=nonce, resource_names_unsubscribe=names
        )
        await self.call.write(request.SerializeToString())

    async def receive(self) -> Any:
        async with asyncio.timeout(SECONDS):
            data = await self.call.read()
        assert data is not EOF, "the stream has ended"
        return (discovery_pb2.DeltaDiscoveryResponse if self.delta else discovery_pb2.DiscoveryResponse).FromString(
            data
        )

    async def expect(self, kind: str, *names: str, removed: tuple[str, ...] = ()) -> str:
        """Check the type and names of the next response, and return its nonce."""
        response = await self.receive()
        names_received = [
            cluster_pb2.Cluster.FromString(getattr(r, "resource", r).value).name for r in response.resources
        ]
        assert (short_name(response.type_url), names_received, tuple(getattr(response, "removed_resources", ()))) == (
            kind,
            list(names),
            removed,
        )
        nonce: str = response.nonce
        return nonce

    async def rejection(self) -> tuple[grpc.StatusCode, str]:
        """Return the status with which a request for clusters is rejected.

        For streams that are rejected before their first request, use `end_status`: grpcio replaces the status of a
        stream that ends during a write with INTERNAL.
        """
        await self.request("cds")
        return await self.end_status()

    async def end_status(self) -> tuple[grpc.StatusCode, str]:
        """Return the status that the stream ends with, ignoring responses before it."""
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not EOF:
                    pass
            return await self.call.code(), await self.call.details()
