"""Cluster metadata under the key `istio`, which filters, telemetry and users read."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.cluster.v3 import cluster_pb2
from google.protobuf import struct_pb2

from pilot.config.object import ObjectKey
from pilot.envoy import names
from pilot.mesh.model.service import Service

KEY = "istio"


def istio_fields(cluster: cluster_pb2.Cluster) -> struct_pb2.Struct:
    """Return the `istio` metadata of a cluster, creating it if necessary."""
    fields: struct_pb2.Struct = cluster.metadata.filter_metadata[KEY]
    return fields


def add_services(cluster: cluster_pb2.Cluster, services: Iterable[Service]) -> None:
    """Add the services of the cluster, which telemetry reports as the destination."""
    values = istio_fields(cluster).fields["services"].list_value.values
    for service in services:
        fields = values.add().struct_value.fields
        fields["host"].string_value = service.hostname
        fields["name"].string_value = service.name
        fields["namespace"].string_value = service.namespace


def set_rule(cluster: cluster_pb2.Cluster, rule: ObjectKey) -> None:
    """Set the DestinationRule that configures the cluster."""
    istio_fields(cluster).fields["config"].string_value = names.config_path(
        "destination-rule", rule.namespace, rule.name
    )


def set_subset(cluster: cluster_pb2.Cluster, subset: str) -> None:
    """Set the subset of the cluster."""
    istio_fields(cluster).fields["subset"].string_value = subset


def mark_external(cluster: cluster_pb2.Cluster) -> None:
    """Mark a cluster as external to the mesh. Proxies do not exchange metadata with external peers."""
    istio_fields(cluster).fields["external"].bool_value = True


def disable_metadata_exchange(cluster: cluster_pb2.Cluster) -> None:
    """Disable metadata exchange for a cluster.

    All its endpoints are reached through tunnels, where peers do not exchange metadata.
    """
    istio_fields(cluster).fields["disable_mx"].bool_value = True


def disable_alpn_override(cluster: cluster_pb2.Cluster) -> None:
    """Prevent the filter `istio.alpn` from overriding the ALPN of a cluster that does not use mesh TLS."""
    istio_fields(cluster).fields["alpn_override"].string_value = "false"
