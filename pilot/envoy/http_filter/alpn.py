"""Builds istio.alpn: what a client's proxy offers by ALPN, so that the server's proxy knows which protocol was detected.

`istio` stands in each list for servers' proxies from before Istio 1.4, the plain protocol for servers outside of the mesh.
"""

from __future__ import annotations

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.typed import pack
from protos import alpn_pb2

NAME = "istio.alpn"
_OFFERS = {
    alpn_pb2.FilterConfig.HTTP10: ("istio-http/1.0", "istio", "http/1.0"),
    alpn_pb2.FilterConfig.HTTP11: ("istio-http/1.1", "istio", "http/1.1"),
    alpn_pb2.FilterConfig.HTTP2: ("istio-h2", "istio", "h2"),
}
ALPN = hcm_pb2.HttpFilter(
    name=NAME,
    typed_config=pack(
        alpn_pb2.FilterConfig(
            alpn_override=[
                alpn_pb2.FilterConfig.AlpnOverride(upstream_protocol=p, alpn_override=offer)
                for p, offer in _OFFERS.items()
            ]
        )
    ),
)
