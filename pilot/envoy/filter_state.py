"""Builds what a filter notes about a connection or request: values under a key, which filters behind it read.

What is shared with upstreams is known to the listener inside of the proxy that a cluster leads to. A value that can be hashed keeps connections with
another one apart, so that no request goes through a tunnel that was opened for somebody else.
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2, extension_pb2, substitution_format_string_pb2
from envoy.extensions.filters.common.set_filter_state.v3 import value_pb2
from envoy.extensions.formatter.cel.v3 import cel_pb2

from pilot.envoy.well_known_types import pack

Value = value_pb2.FilterStateValue
Sharing = value_pb2.FilterStateValue.SharedWithUpstream
ONCE, TRANSITIVE = Value.ONCE, Value.TRANSITIVE

DESTINATION = "envoy.filters.listener.original_dst.local_ip"
SOURCE = "envoy.filters.listener.original_dst.remote_ip"
AUTHORITY = "io.istio.connect_authority"
REQUEST_SOURCE = "io.istio.source"
PEER_PRINCIPAL = "io.istio.peer_principal"
LOCAL_PRINCIPAL = "io.istio.local_principal"
HBONE_TARGET = "istio.double_hbone.hbone_target_address"
TRANSPORT_DESTINATION = "envoy.network.transport_socket.original_dst_address"
_CEL = extension_pb2.TypedExtensionConfig(name="envoy.formatter.cel", typed_config=pack(cel_pb2.Cel()))


def hashable(istio: bool) -> str:
    """Returns the kind of a value that can be hashed; `istio`: as Istio's builds of Envoy call it."""
    return "istio.hashable_string" if istio else "envoy.hashable_string"


def build_value(
    key: str, text: str, kind: str = "", shared: int | None = None, cel: bool = False
) -> value_pb2.FilterStateValue:
    """Returns a value by its format. `kind`: of a value that the key itself does not tell; `cel`: the format has expressions."""
    source = base_pb2.DataSource(inline_string=text)
    form = substitution_format_string_pb2.SubstitutionFormatString(
        text_format_source=source, formatters=[_CEL] if cel else []
    )
    value = Value(object_key=key, factory_key=kind, format_string=form)
    if shared is not None:
        value.shared_with_upstream = shared
    return value
