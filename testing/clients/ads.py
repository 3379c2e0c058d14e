"""The ADS server in this process, over a plan that a test controls, and a client that only moves messages."""

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
from pilot.lib.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.mesh.tables.database import Mesh
from pilot.settings.process import ServeSettings
from pilot.xds.admission import DEFAULT_STREAM_LIMITS, Admission, StreamLimits
from pilot.xds.ads import SERVICE, Ads, AdsOptions
from pilot.xds.authn.identity import Authenticate, Caller, IdentityError, no_authentication
from pilot.xds.push.discovery import Discovery
from pilot.xds.push.pusher import Pushed, Pusher
from pilot.xds.push.write_limiter import DEFAULT_LIMITS, WriteLimits
from pilot.xds.server import make_server
from testing.clients.scripted_stream import resource

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1), ("grpc.http2.bdp_probe", 0)]
NODE = "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local"
SECONDS = 10.0
DEFAULT_SETTINGS = ServeSettings()


def open_channel(address: str) -> Any:
    """Return a channel of its own. The stubs of grpc know less of it than it has, so it has no type."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)


@derived
def resources(db: Mesh, short_type: str, scope: str) -> Mapping[str, Resource]:
    """Return the contents of the row "type/scope" of the table `mesh`, by name. A content "fail" raises as a bug does."""
    contents: dict[str, str] = db.mesh.get(f"{short_type}/{scope}") or {}
    if "fail" in contents.values():
        raise ZeroDivisionError(short_type)
    return {name: resource(short_type, name, content) for name, content in contents.items()}


@derived
def plan(db: Mesh, node_id: str) -> ProxyPlan:
    """What all share, and clusters of the proxy's own namespace, or of the one that the row "instead/namespace" names."""
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


async def shown(caller: Caller) -> Sequence[str]:
    """The identities of the header "shows"; "forged" is refused."""
    found = caller.header("shows")
    if found == "forged":
        raise IdentityError("nobody signed it")
    return found.split(",") if found else ()


class Server:
    """A running server. `set` changes the world."""

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
        **more: Any,
    ) -> None:
        self.db, self.metrics = Mesh() if mesh is None else mesh, Metrics()
        self.discovery = Discovery(self.db, self.metrics, plan, linger)
        self.pusher = Pusher(self.discovery, self.metrics, limits, on_push)
        options = AdsOptions(Admission(rate), {"alias": "Kubernetes"}, stream_limits, authenticate=authenticate, **more)
        self.ads = Ads(self.discovery, self.pusher, self.metrics, options)
        self.grpc = make_server(settings, [self.ads.handlers()])
        self.port = self.grpc.add_insecure_port("127.0.0.1:0")

    def set(self, where: str, **contents: str) -> int:
        """Row "type/scope"; the number of proxies that it concerns."""
        key = where if "/" in where else f"{where}/all"
        return self.discovery.wake(self.db.commit([(self.db.mesh, key, contents)]), {"config": 1})

    def metric(self, line: str) -> bool:
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
    """What a client connects to."""

    @property
    def port(self) -> int: ...


class Client:
    """One stream. `ask` sends a request, `take` awaits a response."""

    def __init__(
        self, server: Listening, variant: str = "delta", node_id: str = NODE, shows: str = "", **metadata: Any
    ) -> None:
        """`shows`: what the caller shows of itself, in the header "shows"."""
        self.delta, self.node_id, self.metadata = variant == "delta", node_id, metadata
        self.channel = open_channel(f"127.0.0.1:{server.port}")
        method = "DeltaAggregatedResources" if self.delta else "StreamAggregatedResources"
        self.call = self.channel.stream_stream(f"/{SERVICE}/{method}")(metadata=(("shows", shows),) if shows else ())
        self.first = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.call.cancel()
        await self.channel.close()

    async def ask(self, kind: str, *names: str, nonce: str = "") -> None:
        make: Any = discovery_pb2.DeltaDiscoveryRequest if self.delta else discovery_pb2.DiscoveryRequest
        request = make(type_url=BY_SHORT_NAME.get(kind, kind), response_nonce=nonce)
        (request.resource_names_subscribe if self.delta else request.resource_names).extend(names)
        if self.first:
            request.node.id = self.node_id
            request.node.metadata.update(self.metadata)
            self.first = False
        await self.call.write(request.SerializeToString())

    async def nack(self, kind: str, nonce: str, message: str) -> None:
        """Refuse a response."""
        make: Any = discovery_pb2.DeltaDiscoveryRequest if self.delta else discovery_pb2.DiscoveryRequest
        request = make(type_url=BY_SHORT_NAME[kind], response_nonce=nonce)
        request.error_detail.code, request.error_detail.message = 13, message
        await self.call.write(request.SerializeToString())

    async def unsubscribe(self, kind: str, *names: str, nonce: str = "") -> None:
        """Delta: want some names no longer."""
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=BY_SHORT_NAME[kind], response_nonce=nonce, resource_names_unsubscribe=names
        )
        await self.call.write(request.SerializeToString())

    async def take(self) -> Any:
        async with asyncio.timeout(SECONDS):
            data = await self.call.read()
        assert data is not EOF, "the stream has ended"
        return (discovery_pb2.DeltaDiscoveryResponse if self.delta else discovery_pb2.DiscoveryResponse).FromString(
            data
        )

    async def gets(self, kind: str, *names: str, removed: tuple[str, ...] = ()) -> str:
        """The next response is this one; its nonce."""
        response = await self.take()
        got = [cluster_pb2.Cluster.FromString(getattr(r, "resource", r).value).name for r in response.resources]
        assert (short_name(response.type_url), got, tuple(getattr(response, "removed_resources", ()))) == (
            kind,
            list(names),
            removed,
        )
        nonce: str = response.nonce
        return nonce

    async def refused(self) -> tuple[grpc.StatusCode, str]:
        """The status with which clusters are refused, perhaps before they have been asked for."""
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.ask("cds")
        return await self.ends()

    async def ends(self) -> tuple[grpc.StatusCode, str]:
        """The status that the stream ends with, behind whatever comes before."""
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not EOF:
                    pass
            return await self.call.code(), await self.call.details()
