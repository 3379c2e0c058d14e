"""The HTTP connection manager.

HTTP connection managers of the same class share a template (`build_http_connection_manager`). The statistics prefix,
routes and tracing of a single manager are appended to the serialized template, because protobuf merges concatenated
fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import address_pb2, config_source_pb2, extension_pb2, protocol_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.http.header_formatters.preserve_case.v3 import preserve_case_pb2
from google.protobuf import duration_pb2, wrappers_pb2

from pilot.config.mesh.proxy_config import ConnectionSettings, ProxyHeaders, SetCurrentClientCertDetails
from pilot.envoy.names import CONNECT_TERMINATE
from pilot.envoy.tracing.request_tracing import build_request_id
from pilot.envoy.well_known_types import build_duration, pack
from pilot.lib.duration import Duration

NAME = "envoy.filters.network.http_connection_manager"
SERVER_NAME = "istio-envoy"
CONNECT = "CONNECT"
MAX_TUNNELS = 100  # concurrent tunnels in a connection

Side = Literal["inbound", "outbound", "gateway", "waypoint"]
Manager = hcm_pb2.HttpConnectionManager

_YES, _NO = wrappers_pb2.BoolValue(value=True), wrappers_pb2.BoolValue(value=False)
_ZERO = duration_pb2.Duration()
_CONNECT = Manager.UpgradeConfig(upgrade_type=CONNECT)
_WEBSOCKET = Manager.UpgradeConfig(upgrade_type="websocket")
_PRESERVE_CASE = protocol_pb2.Http1ProtocolOptions.HeaderKeyFormat(
    stateful_formatter=extension_pb2.TypedExtensionConfig(
        name="preserve_case", typed_config=pack(preserve_case_pb2.PreserveCaseFormatterConfig())
    )
)
_ADS = config_source_pb2.ConfigSource(
    ads=config_source_pb2.AggregatedConfigSource(),
    initial_fetch_timeout=_ZERO,
    resource_api_version=config_source_pb2.ApiVersion.V3,
)
_NORMALIZATIONS: dict[str, dict[str, object]] = {
    "NONE": {"normalize_path": _NO},
    "BASE": {"normalize_path": _YES},
    "DEFAULT": {"normalize_path": _YES},
    "MERGE_SLASHES": {"normalize_path": _YES, "merge_slashes": True},
    "DECODE_AND_MERGE_SLASHES": {
        "normalize_path": _YES,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": Manager.UNESCAPE_AND_FORWARD,
    },
}
_UNDERSCORES = {
    "HEADERS_WITH_UNDERSCORES_ALLOW": protocol_pb2.HttpProtocolOptions.ALLOW,
    "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST": protocol_pb2.HttpProtocolOptions.REJECT_REQUEST,
    "HEADERS_WITH_UNDERSCORES_DROP_HEADER": protocol_pb2.HttpProtocolOptions.DROP_HEADER,
}
_FORWARDED = {
    "SANITIZE": Manager.SANITIZE,
    "FORWARD_ONLY": Manager.FORWARD_ONLY,
    "APPEND_FORWARD": Manager.APPEND_FORWARD,
    "SANITIZE_SET": Manager.SANITIZE_SET,
    "ALWAYS_FORWARD_ONLY": Manager.ALWAYS_FORWARD_ONLY,
}


class HttpOptions(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The settings that all HTTP connection managers of a class share.

    `normalization` is the path normalization of the mesh config. `internal_networks` are CIDRs. Requests from these
    networks are treated as internal. `http2` is set for ports that only speak HTTP/2. `absolute_urls` enables forward
    proxying. `forwards_identity` is set if a filter has already set the header that identifies the client.
    """

    side: Side
    headers: ProxyHeaders = ProxyHeaders()
    connections: ConnectionSettings = ConnectionSettings()
    normalization: str = "DEFAULT"
    http10: bool = False
    http2: bool = False
    http3: bool = False
    absolute_urls: bool = False
    idle_timeout: Duration | None = None
    use_remote_address: bool = False
    continue_100: bool = True
    internal_networks: tuple[str, ...] = ()
    forwards_identity: bool = False


def build_http_connection_manager(
    options: HttpOptions, filters: Iterable[hcm_pb2.HttpFilter], access_logs: Iterable[accesslog_pb2.AccessLog] = ()
) -> hcm_pb2.HttpConnectionManager:
    """Return an HTTP connection manager without a statistics prefix, routes or tracing."""
    headers = options.headers
    manager = Manager(
        codec_type=Manager.HTTP3 if options.http3 else Manager.AUTO,
        path_with_escaped_slashes_action=Manager.KEEP_UNCHANGED,
        use_remote_address=_YES if options.use_remote_address else _NO,
        upgrade_configs=[_WEBSOCKET],
        stream_idle_timeout=_ZERO,
        http_filters=filters,
        access_log=access_logs,
        request_id_extension=build_request_id(sampling=True),
        proxy_100_continue=options.continue_100,
        append_x_forwarded_port=bool(headers.x_forwarded_port is not None and headers.x_forwarded_port.enabled),
    )
    for name, value in _NORMALIZATIONS[options.normalization].items():
        if isinstance(value, wrappers_pb2.BoolValue):
            getattr(manager, name).CopyFrom(value)
        else:
            setattr(manager, name, value)
    _set_protocols(manager, options)
    _set_headers(manager, options.side, headers)
    if options.forwards_identity:
        manager.forward_client_cert_details = Manager.ALWAYS_FORWARD_ONLY
    _set_connections(manager, options.connections)
    if options.internal_networks:
        manager.internal_address_config.cidr_ranges.extend(_cidr(text) for text in options.internal_networks)
    return manager


def build_terminating_manager(
    headers: ProxyHeaders,
    filters: Iterable[hcm_pb2.HttpFilter],
    access_logs: Iterable[accesslog_pb2.AccessLog],
    routes: route_pb2.RouteConfiguration,
) -> hcm_pb2.HttpConnectionManager:
    """Return the HTTP connection manager that terminates tunnels. Clients open tunnels with CONNECT requests.

    Keepalives detect clients that vanished. The stream limit spreads tunnels over connections, because a single thread
    serves all streams of a connection.
    """
    manager = Manager(
        stat_prefix=CONNECT_TERMINATE,
        use_remote_address=_NO,
        upgrade_configs=[_CONNECT],
        stream_idle_timeout=_ZERO,
        http_filters=filters,
        access_log=access_logs,
        route_config=routes,
    )
    _set_headers(manager, "inbound", headers)
    manager.set_current_client_cert_details.CopyFrom(build_cert_details(None))
    http2 = manager.http2_protocol_options
    http2.allow_connect = True
    http2.max_concurrent_streams.value = MAX_TUNNELS
    http2.connection_keepalive.interval.seconds, http2.connection_keepalive.timeout.seconds = 10, 20
    return manager


def rds(name: str) -> hcm_pb2.Rds:
    """Return the source of a route configuration over ADS. The listener waits until the routes arrive."""
    return hcm_pb2.Rds(config_source=_ADS, route_config_name=name)


def _set_protocols(manager: hcm_pb2.HttpConnectionManager, options: HttpOptions) -> None:
    if options.http3:
        manager.http3_protocol_options.SetInParent()
    if options.http2:
        manager.http2_protocol_options.SetInParent()
    if options.http10:
        manager.http_protocol_options.accept_http_10 = True
    if options.absolute_urls:
        manager.http_protocol_options.allow_absolute_url.CopyFrom(_YES)
    if options.headers.preserve_http1_header_case:
        manager.http_protocol_options.header_key_format.CopyFrom(_PRESERVE_CASE)
    if options.idle_timeout is not None:
        manager.common_http_protocol_options.idle_timeout.CopyFrom(build_duration(options.idle_timeout))


def _set_headers(manager: hcm_pb2.HttpConnectionManager, side: Side, headers: ProxyHeaders) -> None:
    """Set the headers that describe the server and the client.

    On the outbound side, the server name is Envoy's default.
    """
    server = headers.server
    if server is not None and server.disabled:
        manager.server_header_transformation = Manager.PASS_THROUGH
    elif server is not None and server.value:
        manager.server_name = server.value
    elif side != "outbound":
        manager.server_name = SERVER_NAME
    if headers.request_id is not None and headers.request_id.disabled:
        manager.generate_request_id.CopyFrom(_NO)
    if side == "inbound":
        manager.forward_client_cert_details = _FORWARDED.get(headers.forwarded_client_cert, Manager.APPEND_FORWARD)
        manager.set_current_client_cert_details.CopyFrom(build_cert_details(headers.set_current_client_cert_details))


def build_cert_details(
    settings: SetCurrentClientCertDetails | None,
) -> hcm_pb2.HttpConnectionManager.SetCurrentClientCertDetails:
    """Return the fields of a client certificate that are written to X-Forwarded-Client-Cert."""
    details = settings or SetCurrentClientCertDetails()
    return Manager.SetCurrentClientCertDetails(
        subject=_NO if details.subject is False else _YES,
        uri=details.uri is not False,
        dns=details.dns is not False,
        cert=bool(details.cert),
        chain=bool(details.chain),
    )


def _set_connections(manager: hcm_pb2.HttpConnectionManager, settings: ConnectionSettings) -> None:
    """Set the connection limits and path settings from the proxy config.

    Path settings in the proxy config override those in the mesh config.
    """
    shared = manager.common_http_protocol_options
    for target, name, value in (
        (shared, "idle_timeout", settings.http_idle_timeout),
        (shared, "max_connection_duration", settings.http_max_connection_duration),
        (shared, "max_stream_duration", settings.http_max_stream_duration),
        (manager, "stream_idle_timeout", settings.http_stream_idle_timeout),
        (manager, "request_timeout", settings.http_request_timeout),
        (manager, "request_headers_timeout", settings.http_request_headers_timeout),
        (manager, "drain_timeout", settings.http_drain_timeout),
    ):
        if value is not None:
            getattr(target, name).CopyFrom(build_duration(value))
    for name, number in (
        ("max_concurrent_streams", settings.http_max_concurrent_streams),
        ("initial_stream_window_size", settings.http2_initial_stream_window_size),
        ("initial_connection_window_size", settings.http2_initial_connection_window_size),
    ):
        if number is not None:
            manager.http2_protocol_options.SetInParent()
            if number >= 0:
                getattr(manager.http2_protocol_options, name).CopyFrom(wrappers_pb2.UInt32Value(value=number))
    if settings.http_headers_with_underscores_action in _UNDERSCORES:
        shared.SetInParent()
        shared.headers_with_underscores_action = _UNDERSCORES[settings.http_headers_with_underscores_action]
    if settings.http_merge_slashes is not None:
        manager.merge_slashes = settings.http_merge_slashes
    if settings.http_path_with_escaped_slashes_action != "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED":
        manager.path_with_escaped_slashes_action = Manager.PathWithEscapedSlashesAction.Value(
            settings.http_path_with_escaped_slashes_action
        )


def _cidr(text: str) -> address_pb2.CidrRange:
    prefix, _, length = text.partition("/")
    return address_pb2.CidrRange(address_prefix=prefix, prefix_len=wrappers_pb2.UInt32Value(value=int(length)))
