"""What a ztunnel is told of a mesh, and a client that takes it over a session as ztunnel's does."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2

from pilot.envoy.resource import Resource
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION
from pilot.xds.session.session import Session
from protos.istio import authorization_pb2, workload_pb2
from testing.mesh.objects import Plain
from testing.mesh.world import World, proxy

AMBIENT = {"PILOT_ENABLE_AMBIENT": "true"}
TYPES = {ADDRESS: workload_pb2.Address, AUTHORIZATION: authorization_pb2.Authorization}


def ambient(*objects: Plain, mesh_config: str = "", **environ: str) -> World:
    """An ambient mesh of these objects."""
    made = World(mesh_config, {**AMBIENT, **environ})
    made.apply_objects(*objects)
    return made


def ztunnel(world: World, node: str = "") -> str:
    """The node id of a ztunnel that connects."""
    return world.connect(proxy("ztunnel", f"ztunnel-{node or 'x'}", "istio-system", "10.9.9.9", NODE_NAME=node))


def told(world: World, type_url: str = ADDRESS) -> dict[str, Any]:
    """The messages of a type that a ztunnel gets, by name."""
    return decoded(world.resources(ztunnel(world)).get(type_url, {}))


def decoded(resources: Mapping[str, Resource]) -> dict[str, Any]:
    """Messages by name; of an address the workload or the service."""
    return {name: message(any_pb2.Any.FromString(resource.any)) for name, resource in resources.items()}


def message(body: any_pb2.Any) -> Any:
    made = TYPES[body.type_url].FromString(body.value)
    return getattr(made, made.WhichOneof("type")) if body.type_url == ADDRESS else made


def workload(world: World, name: str) -> Any:
    """The workload of that name, None where ztunnels are not told of it."""
    return next(
        (one for one in told(world).values() if isinstance(one, workload_pb2.Workload) and one.name == name), None
    )


class ZtunnelClient:
    """A client that keeps what it was told, with versions, and says so when it comes back. With `on_demand` it is told of what it asks for by
    name, else of everything.

    ztunnel subscribes to nothing by subscribing to "*" and taking that back in one request.
    """

    def __init__(
        self, session: Session, on_demand: bool = False, types: tuple[str, ...] = (ADDRESS, AUTHORIZATION)
    ) -> None:
        self.types, self.on_demand = types, on_demand
        self.have: dict[str, dict[str, bytes]] = {url: {} for url in types}
        self.versions: dict[str, dict[str, str]] = {url: {} for url in types}
        self.names: set[str] = set()
        self.aliases: dict[str, tuple[str, ...]] = {}
        self.answered: set[str] = set()
        self.received = 0
        self.connect(session)

    def connect(self, session: Session) -> None:
        """A new stream; what the old one gave stays."""
        self.session = session
        self.inbox: deque[bytes] = deque()
        for url in self.types:
            request = discovery_pb2.DeltaDiscoveryRequest(type_url=url)
            if self.on_demand and url == ADDRESS:
                request.resource_names_subscribe.append("*")
                request.resource_names_unsubscribe.append("*")
                for name in self.names:
                    request.initial_resource_versions[name] = ""
            for name, version in self.versions[url].items():
                request.initial_resource_versions[name] = version
            self.session.receive(request)

    def ask(self, name: str) -> None:
        """Want something on demand."""
        self.names.add(name)
        self.session.receive(discovery_pb2.DeltaDiscoveryRequest(type_url=ADDRESS, resource_names_subscribe=[name]))

    def read(self) -> None:
        """Take the next response, and acknowledge it."""
        response = discovery_pb2.DeltaDiscoveryResponse.FromString(self.inbox.popleft())
        url = response.type_url
        for name in response.removed_resources:
            self.have[url].pop(name, None)
            self.versions[url].pop(name, None)
            self.aliases.pop(name, None)
            self.answered.add(name)
        for one in response.resources:
            self.received += 1
            self.have[url][one.name] = one.resource.value
            self.versions[url][one.name] = one.version
            self.aliases[one.name] = tuple(one.aliases)
            self.answered |= {one.name, *one.aliases}
        self.session.receive(discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=response.nonce))

    def known(self) -> set[str]:
        """The names that it asked for and has something of."""
        return self.names & {name for held in self.have[ADDRESS] for name in (held, *self.aliases[held])}
