"""An ambient mesh with its ztunnel messages, and a client that subscribes as ztunnel does."""

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
    """Return an ambient mesh with these objects."""
    world = World(mesh_config, {**AMBIENT, **environ})
    world.apply_objects(*objects)
    return world


def ztunnel(world: World, node: str = "") -> str:
    """Connect a ztunnel, and return its node id."""
    return world.connect(proxy("ztunnel", f"ztunnel-{node or 'x'}", "istio-system", "10.9.9.9", NODE_NAME=node))


def messages(world: World, type_url: str = ADDRESS) -> dict[str, Any]:
    """Return the messages of a type that a ztunnel receives, by name."""
    return decoded(world.resources(ztunnel(world)).get(type_url, {}))


def decoded(resources: Mapping[str, Resource]) -> dict[str, Any]:
    """Return messages by name. An Address is unwrapped to its Workload or Service."""
    return {name: message(any_pb2.Any.FromString(resource.any)) for name, resource in resources.items()}


def message(body: any_pb2.Any) -> Any:
    content = TYPES[body.type_url].FromString(body.value)
    return getattr(content, content.WhichOneof("type")) if body.type_url == ADDRESS else content


def workload(world: World, name: str) -> Any:
    """Return the workload with this name, or None if ztunnels do not receive it."""
    return next(
        (item for item in messages(world).values() if isinstance(item, workload_pb2.Workload) and item.name == name),
        None,
    )


class ZtunnelClient:
    """A client that keeps its resources and their versions, and announces them when it reconnects.

    With `on_demand` it only requests resources by name. As ztunnel does, it then subscribes to "*" and unsubscribes
    from it in one request.
    """

    def __init__(
        self, session: Session, on_demand: bool = False, types: tuple[str, ...] = (ADDRESS, AUTHORIZATION)
    ) -> None:
        self.types, self.on_demand = types, on_demand
        self.resources: dict[str, dict[str, bytes]] = {url: {} for url in types}
        self.versions: dict[str, dict[str, str]] = {url: {} for url in types}
        self.names: set[str] = set()
        self.aliases: dict[str, tuple[str, ...]] = {}
        self.answered: set[str] = set()
        self.received = 0
        self.connect(session)

    def connect(self, session: Session) -> None:
        """Connect to a new stream, and keep the resources of the old one."""
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

    def request(self, name: str) -> None:
        """Request a resource by name."""
        self.names.add(name)
        self.session.receive(discovery_pb2.DeltaDiscoveryRequest(type_url=ADDRESS, resource_names_subscribe=[name]))

    def read(self) -> None:
        """Take the next response and acknowledge it."""
        response = discovery_pb2.DeltaDiscoveryResponse.FromString(self.inbox.popleft())
        url = response.type_url
        for name in response.removed_resources:
            self.resources[url].pop(name, None)
            self.versions[url].pop(name, None)
            self.aliases.pop(name, None)
            self.answered.add(name)
        for item in response.resources:
            self.received += 1
            self.resources[url][item.name] = item.resource.value
            self.versions[url][item.name] = item.version
            self.aliases[item.name] = tuple(item.aliases)
            self.answered |= {item.name, *item.aliases}
        self.session.receive(discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=response.nonce))

    def resolved_names(self) -> set[str]:
        """Return the requested names for which the client has a resource."""
        return self.names & {
            alias for resource in self.resources[ADDRESS] for alias in (resource, *self.aliases[resource])
        }
