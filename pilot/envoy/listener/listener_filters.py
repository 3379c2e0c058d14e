"""Listener filters, which inspect a connection before its filter chain is selected.

Prebuilt filters are shared and must not be modified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.listener.http_inspector.v3 import http_inspector_pb2
from envoy.extensions.filters.listener.original_dst.v3 import original_dst_pb2
from envoy.extensions.filters.listener.original_src.v3 import original_src_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from envoy.type.v3 import range_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.well_known_types import pack

Filter = listener_components_pb2.ListenerFilter
Predicate = listener_components_pb2.ListenerFilterChainMatchPredicate

MARK = 1337  # marks packets that TPROXY must not capture again
ORIGINAL_DST = Filter(name="envoy.filters.listener.original_dst", typed_config=pack(original_dst_pb2.OriginalDst()))
ORIGINAL_SRC = Filter(
    name="envoy.filters.listener.original_src", typed_config=pack(original_src_pb2.OriginalSrc(mark=MARK))
)
TLS_INSPECTOR = Filter(
    name="envoy.filters.listener.tls_inspector",
    typed_config=pack(tls_inspector_pb2.TlsInspector(initial_read_buffer_size=wrappers_pb2.UInt32Value(value=512))),
)
HTTP_INSPECTOR = Filter(
    name="envoy.filters.listener.http_inspector", typed_config=pack(http_inspector_pb2.HttpInspector())
)


class Inspection(NamedTuple):
    """The inspectors that the filter chains of one port need."""

    tls: bool = False
    http: bool = False


def build_inspectors(by_port: Mapping[int, Inspection]) -> list[listener_components_pb2.ListenerFilter]:
    """Return the inspectors of a listener that captures many ports. Port 0 represents ports without an entry.

    The TLS inspector comes first, because the HTTP inspector skips TLS. Inspectors are disabled on ports that need no
    inspection, because an inspector waits for the client, and on these ports the server may be the first to send.
    """
    inspectors = []
    if any(i.tls for i in by_port.values()):
        default = by_port.get(0, Inspection()).tls
        exceptions = sorted(p for p, i in by_port.items() if p and i.tls is not default)
        disabled = _ports(exceptions) if default else _not(_ports(exceptions))
        inspectors.append(_limited(TLS_INSPECTOR, disabled) if exceptions else TLS_INSPECTOR)
    if any(i.http for i in by_port.values()):
        inspectors.append(without_ports(HTTP_INSPECTOR, sorted(p for p, i in by_port.items() if not i.http)))
    return inspectors


def without_ports(
    inspector: listener_components_pb2.ListenerFilter, ports: list[int]
) -> listener_components_pb2.ListenerFilter:
    """Return an inspector that is disabled for some ports."""
    return _limited(inspector, _ports(ports)) if ports else inspector


def _limited(
    inspector: listener_components_pb2.ListenerFilter,
    disabled: listener_components_pb2.ListenerFilterChainMatchPredicate,
) -> listener_components_pb2.ListenerFilter:
    limited = Filter(filter_disabled=disabled)
    limited.MergeFrom(inspector)
    return limited


def _ports(ports: Iterable[int]) -> listener_components_pb2.ListenerFilterChainMatchPredicate:
    ranges = [Predicate(destination_port_range=range_pb2.Int32Range(start=p, end=p + 1)) for p in ports]
    return ranges[0] if len(ranges) == 1 else Predicate(or_match=Predicate.MatchSet(rules=ranges))


def _not(
    predicate: listener_components_pb2.ListenerFilterChainMatchPredicate,
) -> listener_components_pb2.ListenerFilterChainMatchPredicate:
    return Predicate(not_match=predicate)
