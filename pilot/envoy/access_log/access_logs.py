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


SERVICE_CLUSTER = "envoy_accesslog_service"  # in the proxy's bootstrap


NO_ROUTE = "NR"  # on a listener: no filter chain matched, so that no filter logs the connection


_REFUSED = accesslog_pb2.AccessLogFilter(
    status_code_filter=accesslog_pb2.StatusCodeFilter(
        comparison=accesslog_pb2.ComparisonFilter(
            op=accesslog_pb2.ComparisonFilter.GE,
            value=base_pb2.RuntimeUInt32(default_value=400, runtime_key="istio.io/unset"),
        )
    )
)


_UNREACHED = accesslog_pb2.AccessLogFilter(response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=["UF"]))


_UNMATCHED = accesslog_pb2.AccessLogFilter(response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=[NO_ROUTE]))


class FilteredLogger(msgspec.Struct, frozen=True, cache_hash=True):
    """Logs what an expression is true of, "" for everything."""

    logger: Logger
    expression: str = ""


class AccessLogs(msgspec.Struct, frozen=True, cache_hash=True):
    """Says who logs. `service`: the access log service of the bootstrap does too; `logs_listeners`: connections that reach no filter chain are
    logged."""

    loggers: tuple[FilteredLogger, ...] = ()
    service: bool = False
    logs_listeners: bool = True


@lru_cache(maxsize=256)
def build_http_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Returns the logs of an HTTP connection manager."""
    return _build(
        logs,
        RequestLogger(cluster=SERVICE_CLUSTER, log_name="http_envoy_accesslog", states=PEER_STATE + LEGACY_PEER_STATE),
    )


@lru_cache(maxsize=256)
def build_tcp_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Returns the logs of a TCP proxy."""
    return _build(
        logs,
        ConnectionLogger(
            cluster=SERVICE_CLUSTER, log_name="tcp_envoy_accesslog", states=PEER_STATE + LEGACY_PEER_STATE
        ),
    )


@lru_cache(maxsize=256)
def build_listener_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Returns the logs of a listener: only connections that reach no filter chain."""
    if not logs.logs_listeners:
        return ()
    service = ConnectionLogger(
        cluster=SERVICE_CLUSTER, log_name="listener_envoy_accesslog", states=PEER_STATE + LEGACY_PEER_STATE
    )
    return _build(logs, service, _UNMATCHED)


@lru_cache(maxsize=256)
def build_termination_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Returns the logs of the manager that ends tunnels: only of those that it refuses, for the others are logged inside."""
    return _build(AccessLogs(logs.loggers), None, _REFUSED)


@lru_cache(maxsize=256)
def build_origination_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Returns the logs of where tunnels begin: only of those that come to nothing."""
    return _build(AccessLogs(logs.loggers), None, _UNREACHED)


def _build(
    logs: AccessLogs, service: Logger | None, only: accesslog_pb2.AccessLogFilter | None = None
) -> tuple[accesslog_pb2.AccessLog, ...]:
    loggers = (*logs.loggers, *((FilteredLogger(service),) if logs.service and service is not None else ()))
    return tuple(
        accesslog_pb2.AccessLog(
            name=f.logger.name, filter=_build_filter(only, f.expression), typed_config=f.logger.build()
        )
        for f in loggers
    )


def _build_filter(only: accesslog_pb2.AccessLogFilter | None, expression: str) -> accesslog_pb2.AccessLogFilter | None:
    if not expression:
        return only
    config = pack(cel_pb2.ExpressionFilter(expression=expression))
    by_expression = accesslog_pb2.AccessLogFilter(
        extension_filter=accesslog_pb2.ExtensionFilter(name=CEL_FILTER_NAME, typed_config=config)
    )
    if only is None:
        return by_expression
    return accesslog_pb2.AccessLogFilter(and_filter=accesslog_pb2.AndFilter(filters=[only, by_expression]))
