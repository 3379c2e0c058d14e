"""Validation of MeshConfig and MeshNetworks.

A single error rejects the object, and its last valid version stays in force.
"""

from __future__ import annotations

from pilot.config.mesh.mesh_config import CertificateData, MeshConfig, TLSConfig
from pilot.config.mesh.mesh_networks import IstioNetworkGateway, MeshNetworks, Network
from pilot.config.mesh.proxy_config import ConnectionSettings, PrivateKeyProvider, ProxyConfig
from pilot.config.mesh.tracing import Tracing
from pilot.config.problem import Problems, below, each, error, warning
from pilot.config.validation import rules
from pilot.config.validation.config_source import validate_config_source
from pilot.config.validation.extension_provider import (
    check_log_fields,
    check_log_format,
    decode_log_fields,
    validate_provider,
)
from pilot.config.validation.key_material import find_authority_flaw
from pilot.config.validation.label_selector import validate_label_selector
from pilot.config.validation.traffic.load_balancer import validate_locality, validate_zone_aware
from pilot.config.validation.traffic.retry import validate_retry
from pilot.config.validation.traffic.tls import CURVES, TLS_1_3_SUITES, is_cipher_suite, validate_client_tls
from pilot.config.validation.traffic.traffic_policy import validate_connection_pool, validate_outlier_detection
from pilot.config.validation.without_effect import find_without_effect
from pilot.lib.addresses import is_ip

_HOUR = 3_600_000_000_000
_SECOND = 1_000_000_000
_MIN_WINDOW = 65535
_HOST_IP = "$(HOST_IP)"


def validate_mesh_config(mesh: MeshConfig) -> Problems:
    yield from find_without_effect(mesh)
    yield from rules.check_port("proxyListenPort", mesh.proxy_listen_port)
    yield from rules.check_port("proxyInboundListenPort", mesh.proxy_inbound_listen_port)
    if mesh.proxy_listen_port == mesh.proxy_inbound_listen_port:
        yield error(
            "duplicate-port",
            "proxyInboundListenPort",
            f"must differ from proxyListenPort, which is {mesh.proxy_listen_port}",
        )
    if mesh.proxy_http_port:
        yield from rules.check_port("proxyHttpPort", mesh.proxy_http_port)
    yield from rules.check_duration("connectTimeout", mesh.connect_timeout)
    if mesh.connect_timeout > _HOUR:
        yield error("bad-duration", "connectTimeout", f"{mesh.connect_timeout}: must be at most 1h")
    if mesh.protocol_detection_timeout < 0 or mesh.protocol_detection_timeout % rules.MILLISECOND:
        yield error(
            "bad-duration",
            "protocolDetectionTimeout",
            f"{mesh.protocol_detection_timeout}: must be whole milliseconds, at least 0",
        )
    yield from below("defaultConfig", validate_proxy_config(mesh.default_config))
    yield from below("localityLbSetting", validate_locality(mesh.locality_lb_setting, outlier=True))
    if mesh.zone_aware_lb_setting is not None:
        yield from below("zoneAwareLbSetting", validate_zone_aware(mesh.zone_aware_lb_setting, outlier=True))
    for index, setting in enumerate(mesh.service_settings):
        for number, host in enumerate(setting.hosts):
            yield from rules.check_host(f"serviceSettings[{index}].hosts[{number}]", host)
    for index, selector in enumerate(mesh.discovery_selectors):
        yield from below(f"discoverySelectors[{index}]", validate_label_selector(selector))
    for index, source in enumerate(mesh.config_sources):
        yield from below(f"configSources[{index}]", validate_config_source(source))
    yield from each("extensionProviders", mesh.extension_providers, validate_provider)
    yield from _check_access_log_format(mesh)
    yield from _check_trust_domain("trustDomain", mesh.trust_domain)
    for index, alias in enumerate(mesh.trust_domain_aliases):
        yield from _check_trust_domain(f"trustDomainAliases[{index}]", alias)
    for index, authority in enumerate(mesh.ca_certificates):
        yield from below(f"caCertificates[{index}]", _check_authority(authority))
    if mesh.mesh_mTLS is not None and mesh.mesh_mTLS.ecdh_curves:
        yield error("not-supported", "meshMTLS.ecdhCurves", "set the curves in tlsDefaults instead")
    for field, tls in (("meshMTLS", mesh.mesh_mTLS), ("tlsDefaults", mesh.tls_defaults)):
        if tls is not None:
            yield from below(field, _check_tls_names(tls))
    if (policy := mesh.default_traffic_policy) is not None:
        if policy.connection_pool is not None:
            yield from below("defaultTrafficPolicy.connectionPool", validate_connection_pool(policy.connection_pool))
        if policy.outlier_detection is not None:
            yield from below(
                "defaultTrafficPolicy.outlierDetection", validate_outlier_detection(policy.outlier_detection)
            )
    if (retry := mesh.default_http_retry_policy) is not None:
        yield from rules.check_not_negative("defaultHttpRetryPolicy.attempts", retry.attempts)
        yield from rules.check_duration("defaultHttpRetryPolicy.perTryTimeout", retry.per_try_timeout)
        yield from rules.check_duration("defaultHttpRetryPolicy.backoff", retry.backoff)
    if mesh.default_inbound_http_retry_policy is not None:
        yield from below("defaultInboundHttpRetryPolicy", validate_retry(mesh.default_inbound_http_retry_policy))
    if mesh.tcp_keepalive is not None:
        yield from rules.check_duration("tcpKeepalive.time", mesh.tcp_keepalive.time)
        yield from rules.check_duration("tcpKeepalive.interval", mesh.tcp_keepalive.interval)


def _check_access_log_format(mesh: MeshConfig) -> Problems:
    if mesh.access_log_encoding == "TEXT":
        yield from check_log_format("accessLogFormat", mesh.access_log_format)
    elif mesh.access_log_format:
        fields = decode_log_fields(mesh.access_log_format)
        if fields is None:
            yield warning("bad-format", "accessLogFormat", "not a JSON object; the default format is used")
        else:
            yield from check_log_fields("accessLogFormat", fields)


def _check_authority(authority: CertificateData) -> Problems:
    if authority.pem and (reason := find_authority_flaw(authority.pem)) is not None:
        yield warning("bad-certificate", "pem", reason)


def _check_trust_domain(path: str, domain: str) -> rules.Findings:
    if domain and all(rules.is_dns_label(label) for label in domain.removesuffix(".").split(".")):
        return ()
    return (
        error(
            "bad-trust-domain",
            path,
            f"{domain!r} is not a valid trust domain: write a host name, such as cluster.local",
        ),
    )


def _check_tls_names(tls: TLSConfig) -> Problems:
    """Yield warnings for curves and cipher suites that Envoy rejects, and that are therefore not sent to it."""
    for index, curve in enumerate(tls.ecdh_curves):
        if curve not in CURVES:
            yield warning(
                "bad-curve", f"ecdhCurves[{index}]", f"unknown curve {curve!r} is ignored; Envoy does not support it"
            )
    for index, name in enumerate(tls.cipher_suites):
        if name.startswith(TLS_1_3_SUITES):
            yield warning(
                "bad-cipher-suite",
                f"cipherSuites[{index}]",
                f"{name!r} is ignored; Envoy offers all cipher suites of TLS 1.3, and rejects their names",
            )
        elif not is_cipher_suite(name):
            yield warning("bad-cipher-suite", f"cipherSuites[{index}]", f"unknown cipher suite {name!r} is ignored")
    if tls.cipher_suites and not any(is_cipher_suite(name) for name in tls.cipher_suites):
        yield warning("bad-cipher-suite", "cipherSuites", "no cipher suite is left for TLS 1.2; TLS 1.3 is required")


def validate_proxy_config(proxy: ProxyConfig) -> Problems:
    for field, text in (("configPath", proxy.config_path), ("binaryPath", proxy.binary_path)):
        if not text:
            yield error("missing-field", field, "a path is required")
    yield from rules.check_duration("drainDuration", proxy.drain_duration)
    if proxy.drain_duration % _SECOND:
        yield error("bad-duration", "drainDuration", f"{proxy.drain_duration}: must be whole seconds")
    yield from _check_endpoint("discoveryAddress", proxy.discovery_address)
    yield from rules.check_port("proxyAdminPort", proxy.proxy_admin_port)
    yield from rules.check_port("statusPort", proxy.status_port)
    if proxy.control_plane_auth_policy == "INHERIT":
        yield error("bad-enum", "controlPlaneAuthPolicy", "expected NONE or MUTUAL_TLS")
    if proxy.tracing is not None:
        yield from below("tracing", _validate_tracing(proxy.tracing))
    services = (
        ("envoyMetricsService", proxy.envoy_metrics_service),
        ("envoyAccessLogService", proxy.envoy_access_log_service),
    )
    for field, service in services:
        if service is not None and service.address:
            yield from _check_endpoint(f"{field}.address", service.address)
    for field, address in (
        ("statsdUdpAddress", proxy.statsd_udp_address),
        ("envoyMetricsServiceAddress", proxy.envoy_metrics_service_address),
    ):
        if address:
            yield from _check_endpoint(field, address)
    if proxy.private_key_provider is not None:
        yield from below("privateKeyProvider", _validate_key_provider(proxy.private_key_provider))
    if proxy.connection_settings is not None:
        yield from below("connectionSettings", _validate_connections(proxy.connection_settings))


def _check_endpoint(path: str, address: str) -> rules.Findings:
    """Return an error unless an address is host:port."""
    host, _, port = address.replace(_HOST_IP, "127.0.0.1", 1).rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (rules.is_number(port) and 1 <= int(port) <= 65535):
        return (error("bad-port", path, f"{address!r}: expected host:port"),)
    return () if is_ip(host) else rules.check_name(path, host)


def _validate_tracing(tracing: Tracing) -> Problems:
    for field, tracer in (("zipkin", tracing.zipkin), ("lightstep", tracing.lightstep), ("datadog", tracing.datadog)):
        if tracer is not None:
            yield from _check_endpoint(f"{field}.address", tracer.address)
    if tracing.lightstep is not None and not tracing.lightstep.access_token:
        yield error("missing-field", "lightstep.accessToken", "a token is required")
    if tracing.tls_settings is not None:
        yield from below("tlsSettings", validate_client_tls(tracing.tls_settings, ""))
    yield from rules.check_percent("sampling", tracing.sampling)
    for name, tag in tracing.custom_tags.items():
        if not tag.is_whole or not name:
            yield warning(
                "no-effect",
                f"customTags[{name}]",
                "a tag requires a name and a source: a literal, an environment variable or a header",
            )


def _validate_key_provider(provider: PrivateKeyProvider) -> Problems:
    if provider.cryptomb is None and provider.qat is None:
        yield error("missing-field", "", "cryptomb or qat is required")
    for field, part in (("cryptomb", provider.cryptomb), ("qat", provider.qat)):
        if part is not None and not part.poll_delay:
            yield error("missing-field", f"{field}.pollDelay", "must be greater than 0")


def _validate_connections(settings: ConnectionSettings) -> Problems:
    durations = {
        "httpIdleTimeout": settings.http_idle_timeout,
        "httpMaxConnectionDuration": settings.http_max_connection_duration,
        "httpDrainTimeout": settings.http_drain_timeout,
        "httpRequestTimeout": settings.http_request_timeout,
        "httpRequestHeadersTimeout": settings.http_request_headers_timeout,
        "httpStreamIdleTimeout": settings.http_stream_idle_timeout,
        "httpMaxStreamDuration": settings.http_max_stream_duration,
    }
    for field, duration in durations.items():
        yield from rules.check_not_negative(field, duration or 0)
    lowest = {
        "listenerPerConnectionBufferLimitBytes": (settings.listener_per_connection_buffer_limit_bytes, 0),
        "clusterPerConnectionBufferLimitBytes": (settings.cluster_per_connection_buffer_limit_bytes, 0),
        "httpMaxConcurrentStreams": (settings.http_max_concurrent_streams, 1),
        "http2InitialStreamWindowSize": (settings.http2_initial_stream_window_size, _MIN_WINDOW),
        "http2InitialConnectionWindowSize": (settings.http2_initial_connection_window_size, _MIN_WINDOW),
        "listenerConnectionLimit": (settings.listener_connection_limit, 1),
        "globalDownstreamConnectionLimit": (settings.global_downstream_connection_limit, 1),
    }
    for field, (number, least) in lowest.items():
        if number is not None and number < least:
            yield error("out-of-range", field, f"{number}: must be at least {least}")


def validate_mesh_networks(networks: MeshNetworks) -> Problems:
    for name, network in networks.networks.items():
        yield from below(f"networks[{name}]", _validate_network(network))


def _validate_network(network: Network) -> Problems:
    for index, endpoints in enumerate(network.endpoints):
        if endpoints.from_cidr is not None:
            yield from rules.check_subnet(f"endpoints[{index}].fromCidr", endpoints.from_cidr)
        elif endpoints.from_registry is not None and not rules.is_dns_label(endpoints.from_registry):
            yield error(
                "bad-name",
                f"endpoints[{index}].fromRegistry",
                f"{endpoints.from_registry!r} is not a valid registry name",
            )
    for index, gateway in enumerate(network.gateways):
        yield from below(f"gateways[{index}]", _validate_network_gateway(gateway))


def _validate_network_gateway(gateway: IstioNetworkGateway) -> Problems:
    if gateway.registry_service_name is not None:
        yield from rules.check_name("registryServiceName", gateway.registry_service_name)
    elif gateway.address is not None and not is_ip(gateway.address):
        yield from rules.check_name("address", gateway.address)
    if not gateway.port:
        yield error("missing-field", "port", "the port of the gateway is required, for example 15443")
    else:
        yield from rules.check_port("port", gateway.port)
