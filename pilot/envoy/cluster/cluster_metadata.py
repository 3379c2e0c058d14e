"""Writes what clusters carry for filters and for people: metadata under the key `istio`."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.cluster.v3 import cluster_pb2
from google.protobuf import struct_pb2

from pilot.config.object import ObjectKey
from pilot.envoy import names
from pilot.mesh.model.service import Service

KEY = "istio"


def istio_fields(cluster: cluster_pb2.Cluster) -> struct_pb2.Struct:
    """Returns the metadata, created where there is none."""
    fields: struct_pb2.Struct = cluster.metadata.filter_metadata[KEY]
    return fields


def add_services(cluster: cluster_pb2.Cluster, services: Iterable[Service]) -> None:
    """Adds the services that the cluster stands for, from which telemetry takes its labels."""
    values = istio_fields(cluster).fields["services"].list_value.values
    for service in services:
        fields = values.add().struct_value.fields
        fields["host"].string_value = service.hostname
        fields["name"].string_value = service.name
        fields["namespace"].string_value = service.namespace


def set_rule(cluster: cluster_pb2.Cluster, rule: ObjectKey) -> None:
    """Sets the DestinationRule that shaped the cluster."""
    istio_fields(cluster).fields["config"].string_value = names.config_path(
        "destination-rule", rule.namespace, rule.name
    )


def set_subset(cluster: cluster_pb2.Cluster, subset: str) -> None:
    """Sets the subset that the cluster leads to."""
    istio_fields(cluster).fields["subset"].string_value = subset


def mark_external(cluster: cluster_pb2.Cluster) -> None:
    """Marks a cluster outside of the mesh: nobody there exchanges metadata."""
    istio_fields(cluster).fields["external"].bool_value = True


def disable_metadata_exchange(cluster: cluster_pb2.Cluster) -> None:
    """Marks a cluster whose endpoints are all reached through tunnels: nobody exchanges metadata in these."""
    istio_fields(cluster).fields["disable_mx"].bool_value = True


def disable_alpn_override(cluster: cluster_pb2.Cluster) -> None:
    """Marks TLS as the application's own, so that the filter istio.alpn does not rewrite what it offers."""
    istio_fields(cluster).fields["alpn_override"].string_value = "false"
