"""What ztunnels of an ambient mesh are told."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import any_pb2, json_format

from pilot.debug.page import Later, Query
from pilot.debug.sources import Sources
from pilot.envoy.plans.shared_groups import address_groups, policy_groups
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION
from pilot.mesh.tables.database import Mesh
from protos.istio import authorization_pb2, workload_pb2

_MESSAGES = {ADDRESS: workload_pb2.Address, AUTHORIZATION: authorization_pb2.Authorization}


def ambientz(sources: Sources, query: Query) -> Any:
    """Returns every workload, service and policy; each list is None where there is nothing of its sort. As istiod's page has it, bytes of IP
    addresses are those of their text."""
    found = list(_resources(sources.db))
    return Later(lambda: _page(found))


def _resources(db: Mesh) -> Iterator[Resource]:
    """Yields what a ztunnel gets that wants everything."""
    for group in (*address_groups(db).get(ADDRESS, ()), *policy_groups(db)):
        resources: Mapping[Any, Resource] = group.fn(db, *group.args)
        yield from resources.values()


def _page(resources: list[Resource]) -> Mapping[str, Any]:
    lists: dict[str, list[Any]] = {"workloads": [], "services": [], "policies": []}
    for resource in resources:
        body = any_pb2.Any.FromString(resource.any)
        message = _MESSAGES[body.type_url].FromString(body.value)
        if isinstance(message, authorization_pb2.Authorization):
            lists["policies"].append(json_format.MessageToDict(message))
            continue
        sort = message.WhichOneof("type")
        lists[f"{sort}s"].append(json_format.MessageToDict(_legible(getattr(message, sort))))
    return {name: shown or None for name, shown in lists.items()}


def _legible(one: workload_pb2.Workload | workload_pb2.Service) -> workload_pb2.Workload | workload_pb2.Service:
    """Returns the message with IP addresses as text."""
    if isinstance(one, workload_pb2.Workload):
        one.addresses[:] = [_text(raw) for raw in one.addresses]
        ways = [one.waypoint, one.network_gateway]
    else:
        for address in one.addresses:
            address.address = _text(address.address)
        ways = [one.waypoint]
    for way in ways:
        if way.WhichOneof("destination") == "address":
            way.address.address = _text(way.address.address)
    return one


def _text(raw: bytes) -> bytes:
    return str(ipaddress.ip_address(raw)).encode()
