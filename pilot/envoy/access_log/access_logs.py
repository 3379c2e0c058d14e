"""Builds the access logs of HTTP connection managers, TCP proxies and listeners."""

from __future__ import annotations

from functools import lru_cache

import msgspec
from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2

from pilot.envoy.access_log.loggers import LEGACY_PEER_STATE, PEER_STATE, ConnectionLogger, Logger, RequestLogger
from pilot.envoy.well_known_types import pack

CEL_FILTER_NAME = "envoy.access_loggers.extension_filters.cel"
SERVICE_CLUSTER = "envoy_accesslog_service"  # a cluster in the proxy's bootstrap
NO_ROUTE = "NR"  # on a listener: no filter chain matched, so no filter logs the connection
_ERROR_STATUS = accesslog_pb2.AccessLogFilter(
    status_code_filter=accesslog_pb2.StatusCodeFilter(
        comparison=accesslog_pb2.ComparisonFilter(
            op=accesslog_pb2.ComparisonFilter.GE,
            value=base_pb2.RuntimeUInt32(default_value=400, runtime_key="istio.io/unset"),
        )
    )
)
_UPSTREAM_FAILURE = accesslog_pb2.AccessLogFilter(response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=["UF"]))
_NO_FILTER_CHAIN = accesslog_pb2.AccessLogFilter(
    response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=[NO_ROUTE])
)


class FilteredLogger(msgspec.Struct, frozen=True, cache_hash=True):
    """A logger, and a CEL expression that selects the entries to log. The expression "" selects all entries."""

    logger: Logger
    expression: str = ""


class AccessLogs(msgspec.Struct, frozen=True, cache_hash=True):
    """The loggers of a proxy.

    `service` adds a logger for the access log service that is defined in the bootstrap. `logs_listeners` enables the
    logs of listeners, for connections that match no filter chain.
    """

    loggers: tuple[FilteredLogger, ...] = ()
    service: bool = False
    logs_listeners: bool = True


@lru_cache(maxsize=256)
def build_http_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Return the access logs of an HTTP connection manager."""
    return _build(
        logs,
        RequestLogger(cluster=SERVICE_CLUSTER, log_name="http_envoy_accesslog", states=PEER_STATE + LEGACY_PEER_STATE),
    )


@lru_cache(maxsize=256)
def build_tcp_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Return the access logs of a TCP proxy."""
    return _build(
        logs,
        ConnectionLogger(
            cluster=SERVICE_CLUSTER, log_name="tcp_envoy_accesslog", states=PEER_STATE + LEGACY_PEER_STATE
        ),
    )


@lru_cache(maxsize=256)
def build_listener_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Return the access logs of a listener. They log only connections that match no filter chain."""
    if not logs.logs_listeners:
        return ()
    service = ConnectionLogger(
        cluster=SERVICE_CLUSTER, log_name="listener_envoy_accesslog", states=PEER_STATE + LEGACY_PEER_STATE
    )
    return _build(logs, service, _NO_FILTER_CHAIN)


@lru_cache(maxsize=256)
def build_termination_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Return the access logs of the HTTP connection manager that terminates tunnels.

    They log only rejected tunnels, because the traffic in the other tunnels is logged after termination.
    """
    return _build(AccessLogs(logs.loggers), None, _ERROR_STATUS)


@lru_cache(maxsize=256)
def build_origination_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Return the access logs for tunnel origination. They log only tunnels that fail."""
    return _build(AccessLogs(logs.loggers), None, _UPSTREAM_FAILURE)


def _build(
    logs: AccessLogs, service: Logger | None, condition: accesslog_pb2.AccessLogFilter | None = None
) -> tuple[accesslog_pb2.AccessLog, ...]:
    loggers = (*logs.loggers, *((FilteredLogger(service),) if logs.service and service is not None else ()))
    return tuple(
        accesslog_pb2.AccessLog(
            name=f.logger.name, filter=_build_filter(condition, f.expression), typed_config=f.logger.build()
        )
        for f in loggers
    )


def _build_filter(
    condition: accesslog_pb2.AccessLogFilter | None, expression: str
) -> accesslog_pb2.AccessLogFilter | None:
    if not expression:
        return condition
    config = pack(cel_pb2.ExpressionFilter(expression=expression))
    by_expression = accesslog_pb2.AccessLogFilter(
        extension_filter=accesslog_pb2.ExtensionFilter(name=CEL_FILTER_NAME, typed_config=config)
    )
    if condition is None:
        return by_expression
    return accesslog_pb2.AccessLogFilter(and_filter=accesslog_pb2.AndFilter(filters=[condition, by_expression]))
