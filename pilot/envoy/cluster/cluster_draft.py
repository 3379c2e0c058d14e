"""A cluster under construction: the message, and its HTTP options, which are packed when the cluster is complete."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import protocol_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2

from pilot.envoy.well_known_types import pack

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


class ClusterDraft:
    """A cluster that several builders fill in turn. Its HTTP options are created on first access."""

    __slots__ = ("_options", "cluster", "dynamic", "insecure")

    def __init__(self, cluster: cluster_pb2.Cluster, dynamic: bool = False, insecure: bool = False) -> None:
        self.cluster = cluster
        self.dynamic = dynamic  # a dynamic forward proxy resolves the host of each request
        self.insecure = insecure  # a dynamic forward proxy need not verify the host
        self._options: http_protocol_options_pb2.HttpProtocolOptions | None = None

    @property
    def options(self) -> http_protocol_options_pb2.HttpProtocolOptions:
        """Return the HTTP options, creating them if necessary."""
        if self._options is None:
            self._options = http_protocol_options_pb2.HttpProtocolOptions()
        return self._options

    @property
    def has_options(self) -> bool:
        """Return whether the HTTP options exist."""
        return self._options is not None

    @property
    def protocol(self) -> str:
        """Return the field of `options` that selects the upstream protocol, or "" if no protocol is selected."""
        return (self._options is not None and self._options.WhichOneof("upstream_protocol_options")) or ""

    @property
    def is_http2(self) -> bool:
        """Return whether the cluster speaks only HTTP/2."""
        return self._options is not None and self._options.explicit_http_config.HasField("http2_protocol_options")

    @property
    def passes_through(self) -> bool:
        """Return whether the cluster forwards to the original destination of the connection."""
        return bool(self.cluster.type == cluster_pb2.Cluster.ORIGINAL_DST)

    def use_http2(self) -> None:
        """Use only HTTP/2, unless a protocol is already chosen."""
        if not self.protocol:
            self.options.explicit_http_config.http2_protocol_options.SetInParent()

    def use_downstream_protocol(self) -> None:
        """Use the protocol of the downstream connection."""
        http1 = protocol_pb2.Http1ProtocolOptions()
        if self.options.explicit_http_config.HasField("http_protocol_options"):
            http1.CopyFrom(self.options.explicit_http_config.http_protocol_options)
        follow = self.options.use_downstream_protocol_config
        follow.http_protocol_options.CopyFrom(http1)
        follow.http2_protocol_options.SetInParent()

    def build(self) -> cluster_pb2.Cluster:
        """Return the finished cluster."""
        if self._options is not None:
            if not self.protocol:  # required by Envoy
                self._options.explicit_http_config.http_protocol_options.SetInParent()
            if self.dynamic and not self.insecure:  # also required without TLS, where it has no effect
                upstream = self._options.upstream_http_protocol_options
                upstream.auto_sni = upstream.auto_san_validation = True
            self.cluster.typed_extension_protocol_options[HTTP_OPTIONS].CopyFrom(pack(self._options))
        return self.cluster
