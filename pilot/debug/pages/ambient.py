"""The debug page of ambient workloads, services and policies: ambientz."""

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
    """Return all workloads, services and policies. Empty lists are None.

    As on istiod's page, IP addresses are the bytes of their textual form.
    """
    resources = list(list_resources(sources.db))
    return Later(lambda: build_page(resources))


def list_resources(db: Mesh) -> Iterator[Resource]:
    """Yield the resources that a ztunnel receives if it subscribes to everything."""
    for group in (*address_groups(db).get(ADDRESS, ()), *policy_groups(db)):
        resources: Mapping[Any, Resource] = group.fn(db, *group.args)
        yield from resources.values()


def build_page(resources: list[Resource]) -> Mapping[str, Any]:
    """Return the content of the page with some resources. It changes them."""
    lists: dict[str, list[Any]] = {"workloads": [], "services": [], "policies": []}
    for resource in resources:
        body = any_pb2.Any.FromString(resource.any)
        message = _MESSAGES[body.type_url].FromString(body.value)
        if isinstance(message, authorization_pb2.Authorization):
            lists["policies"].append(json_format.MessageToDict(message))
            continue
        kind = message.WhichOneof("type")
        lists[f"{kind}s"].append(json_format.MessageToDict(_with_text_addresses(getattr(message, kind))))
    return {name: members or None for name, members in lists.items()}


def _with_text_addresses(
    message: workload_pb2.Workload | workload_pb2.Service,
) -> workload_pb2.Workload | workload_pb2.Service:
    """Return a message whose IP addresses have been converted to their textual form."""
    if isinstance(message, workload_pb2.Workload):
        message.addresses[:] = [_text(raw) for raw in message.addresses]
        references = [message.waypoint, message.network_gateway]
    else:
        for address in message.addresses:
            address.address = _text(address.address)
        references = [message.waypoint]
    for reference in references:
        if reference.WhichOneof("destination") == "address":
            reference.address.address = _text(reference.address.address)
    return message


def _text(raw: bytes) -> bytes:
    return str(ipaddress.ip_address(raw)).encode()
