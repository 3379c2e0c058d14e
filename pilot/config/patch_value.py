"""Parses the `value` of an EnvoyFilter patch as an Envoy message."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2

from pilot.derive import run_steps
from pilot.lib.protobuf.constraints import find_broken_in_steps
from pilot.lib.protobuf.fault import Violation, as_written
from pilot.lib.protobuf.reader import MAX_FAULTS, read_message_in_steps

MERGES = frozenset(("MERGE", "MERGE_AND_REPLACE_LIST"))
TYPES: Mapping[str, type[Any]] = {
    "LISTENER": listener_pb2.Listener,
    "FILTER_CHAIN": listener_components_pb2.FilterChain,
    "LISTENER_FILTER": listener_components_pb2.ListenerFilter,
    "NETWORK_FILTER": listener_components_pb2.Filter,
    "HTTP_FILTER": http_connection_manager_pb2.HttpFilter,
    "ROUTE_CONFIGURATION": route_pb2.RouteConfiguration,
    "VIRTUAL_HOST": route_components_pb2.VirtualHost,
    "HTTP_ROUTE": route_components_pb2.Route,
    "CLUSTER": cluster_pb2.Cluster,
    "EXTENSION_CONFIG": extension_pb2.TypedExtensionConfig,
    "BOOTSTRAP": bootstrap_pb2.Bootstrap,
}
"""Mapping from `applyTo` to the type of the message that a patch changes."""


def read_patch_value(
    apply_to: str, operation: str, plain: Mapping[str, Any], suggests: bool = True
) -> tuple[Any, list[Violation]]:
    """Return the message, and the violations in it. The paths of the violations are as the user wrote them.

    Values that do not fit the type of the message are violations. If there are none, the message's validation rules are
    checked. The value of a merging patch may be incomplete. `suggests` is whether to suggest a known type.
    """
    return run_steps(read_patch_value_in_steps(apply_to, operation, plain, suggests))


def read_patch_value_in_steps(
    apply_to: str, operation: str, plain: Mapping[str, Any], suggests: bool = False
) -> Generator[None, None, tuple[Any, list[Violation]]]:
    """Return the message and the violations as `read_patch_value` does, in steps."""
    message, faults = yield from read_message_in_steps(TYPES[apply_to], plain, suggests)
    if not faults:
        for fault in find_broken_in_steps(message, partial=operation in MERGES):
            if fault is None:
                yield
            else:
                faults.append(fault)
                if len(faults) == MAX_FAULTS:
                    break
    return message, [fault._replace(place=as_written(fault.place, plain)) for fault in faults]
