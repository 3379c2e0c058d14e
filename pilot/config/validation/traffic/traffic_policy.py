"""Validation of traffic policies: connection pools, outlier detection and tunnels."""

from __future__ import annotations

from pilot.config.networking.destination_rule import (
    ConnectionPoolSettings,
    HTTPSettings,
    OutlierDetection,
    PortTrafficPolicy,
    RetryBudget,
    TCPSettings,
    TrafficPolicy,
    TunnelSettings,
)
from pilot.config.problem import Problems, below, error, warning
from pilot.config.validation import rules
from pilot.config.validation.traffic.load_balancer import validate_load_balancer
from pilot.config.validation.traffic.tls import validate_client_tls
from pilot.lib.addresses import is_ip


def validate_traffic_policy(policy: TrafficPolicy, namespace: str) -> Problems:
    if policy == TrafficPolicy():
        yield error("missing-field", "", "at least one field is required")
    if policy.tunnel is not None and policy.proxy_protocol is not None:
        yield error("exclusive-fields", "", "only one of tunnel and proxyProtocol may be set")
    yield from _validate_parts(policy, namespace)
    for index, part in enumerate(policy.port_level_settings):
        yield from below(f"portLevelSettings[{index}]", _validate_port_policy(part, namespace))
    if policy.tunnel is not None:
        yield from below("tunnel", _validate_tunnel(policy.tunnel))
    if policy.retry_budget is not None:
        yield from below("retryBudget", _validate_retry_budget(policy.retry_budget))


def _validate_port_policy(policy: PortTrafficPolicy, namespace: str) -> Problems:
    if policy.port is None:
        yield error("missing-field", "port", "a port is required")
    if (
        policy.outlier_detection is None
        and policy.connection_pool is None
        and policy.load_balancer is None
        and policy.tls is None
    ):
        yield error("missing-field", "", "at least one field besides the port is required")
    yield from _validate_parts(policy, namespace)


def _validate_parts(policy: TrafficPolicy | PortTrafficPolicy, namespace: str) -> Problems:
    if policy.outlier_detection is not None:
        yield from below("outlierDetection", validate_outlier_detection(policy.outlier_detection))
    if policy.connection_pool is not None:
        yield from below("connectionPool", validate_connection_pool(policy.connection_pool))
    if policy.load_balancer is not None:
        yield from below(
            "loadBalancer", validate_load_balancer(policy.load_balancer, policy.outlier_detection is not None)
        )
    if policy.tls is not None:
        yield from below("tls", validate_client_tls(policy.tls, namespace))


def _validate_tunnel(tunnel: TunnelSettings) -> Problems:
    if tunnel.protocol not in ("", "CONNECT", "POST"):
        yield error("bad-protocol", "protocol", f"{tunnel.protocol!r}: expected CONNECT or POST")
    if not is_ip(tunnel.target_host):
        yield from rules.check_name("targetHost", tunnel.target_host)
    yield from rules.check_port("targetPort", tunnel.target_port)


def _validate_retry_budget(budget: RetryBudget) -> Problems:
    yield from rules.check_percent("percent", budget.percent)
    yield from rules.check_duration("budgetInterval", budget.budget_interval)


def validate_outlier_detection(outlier: OutlierDetection) -> Problems:
    yield from rules.check_duration("baseEjectionTime", outlier.base_ejection_time)
    yield from rules.check_duration("interval", outlier.interval)
    if outlier.consecutive_errors:
        yield warning("deprecated-field", "consecutiveErrors", "use consecutiveGatewayErrors or consecutive5xxErrors")
    if outlier.consecutive_local_origin_failures and not outlier.split_external_local_origin_errors:
        yield error(
            "split-needed", "consecutiveLocalOriginFailures", "has no effect without splitExternalLocalOriginErrors"
        )
    yield from rules.check_percent("maxEjectionPercent", outlier.max_ejection_percent)
    yield from rules.check_percent("minHealthPercent", outlier.min_health_percent)
    for index, code in enumerate(outlier.outlier_detection_http_error_codes):
        if not 100 <= code <= 599:
            yield error(
                "bad-status", f"outlierDetectionHttpErrorCodes[{index}]", f"{code}: must be between 100 and 599"
            )


def validate_connection_pool(pool: ConnectionPoolSettings) -> Problems:
    if pool.http is None and pool.tcp is None:
        yield error("missing-field", "", "http or tcp is required")
    if pool.http is not None:
        yield from below("http", _validate_http(pool.http))
    if pool.tcp is not None:
        yield from below("tcp", _validate_tcp(pool.tcp))


def _validate_http(http: HTTPSettings) -> Problems:
    yield from rules.check_not_negative("http1MaxPendingRequests", http.http1_max_pending_requests)
    yield from rules.check_not_negative("http2MaxRequests", http.http2_max_requests)
    yield from rules.check_not_negative("maxRequestsPerConnection", http.max_requests_per_connection)
    yield from rules.check_not_negative("maxRetries", http.max_retries)
    yield from rules.check_not_negative("maxConcurrentStreams", http.max_concurrent_streams)
    yield from rules.check_duration("idleTimeout", http.idle_timeout)
    if http.h2_upgrade_policy == "UPGRADE" and http.use_client_protocol:
        yield error("exclusive-fields", "useClientProtocol", "cannot be true if h2UpgradePolicy is UPGRADE")
    if (keepalive := http.http2_keep_alive) is not None:
        for field, value in (("interval", keepalive.interval), ("timeout", keepalive.timeout)):
            if value is None:
                yield error("missing-field", f"http2KeepAlive.{field}", "a duration is required")
            yield from rules.check_duration(f"http2KeepAlive.{field}", value)


def _validate_tcp(tcp: TCPSettings) -> Problems:
    yield from rules.check_not_negative("maxConnections", tcp.max_connections)
    yield from rules.check_duration("connectTimeout", tcp.connect_timeout)
    yield from rules.check_duration("maxConnectionDuration", tcp.max_connection_duration)
    if tcp.idle_timeout:  # 0 disables it
        yield from rules.check_duration("idleTimeout", tcp.idle_timeout)
    if tcp.tcp_keepalive is not None:
        yield from rules.check_duration("tcpKeepalive.time", tcp.tcp_keepalive.time)
        yield from rules.check_duration("tcpKeepalive.interval", tcp.tcp_keepalive.interval)
