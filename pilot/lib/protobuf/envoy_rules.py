"""Rules that Envoy checks in its code when it builds a resource.

No field declares these rules, so `constraints` applies them in addition to `validate.rules`. The list contains the
mistakes that occur in values that people write. Each rule was observed with `envoy --mode validate`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pilot.lib.addresses import is_ip
from pilot.lib.format_string import find_format_fault
from pilot.lib.protobuf.fault import Place
from pilot.lib.protobuf.types import name_in
from pilot.lib.regex import find_fault

Faults = Iterator[tuple[Place, str]]
"""The faults of a message: the place in the message, and the text."""
_NETWORK = "envoy.extensions.filters.network"
_HTTP_MANAGER = f"{_NETWORK}.http_connection_manager.v3.HttpConnectionManager"
TERMINAL_FILTERS = frozenset(
    (
        "envoy.extensions.filters.http.router.v3.Router",
        _HTTP_MANAGER,
        f"{_NETWORK}.tcp_proxy.v3.TcpProxy",
        f"{_NETWORK}.redis_proxy.v3.RedisProxy",
        f"{_NETWORK}.thrift_proxy.v3.ThriftProxy",
        f"{_NETWORK}.dubbo_proxy.v3.DubboProxy",
        f"{_NETWORK}.generic_proxy.v3.GenericProxy",
        f"{_NETWORK}.echo.v3.Echo",
        f"{_NETWORK}.direct_response.v3.Config",
    )
)
"""Filters that must be the last in their list. Envoy rejects a list in which another filter follows them."""
_DEFAULT_RING_SIZES = 1024, 8 << 20
_LONGEST_REGEX = 64
"""Maximum length of a regular expression that is compiled. Longer ones can compile to programs that take too long."""


def find_faults(message: Any) -> Faults:
    """Yield the violations of a complete message, without those in nested messages."""
    rule = _RULES.get(message.DESCRIPTOR.full_name)
    if rule is not None:
        yield from rule(message)


# -- clusters ----------------------------------------------------------------------------------------------------------


def check_cluster(cluster: Any) -> Faults:
    """Yield the reasons why Envoy rejects a cluster as a whole."""
    both = cluster.HasField("http_protocol_options") and cluster.HasField("http2_protocol_options")
    if both and not cluster.protocol_selection:
        yield ("http2_protocol_options",), "cannot be combined with http_protocol_options"
    if cluster.WhichOneof("cluster_discovery_type") == "cluster_type":
        return
    kind = type(cluster).DiscoveryType.Name(cluster.type)
    yield from _check_load_balancer(cluster, kind)
    if kind == "EDS":
        source = cluster.eds_cluster_config.eds_config.WhichOneof("config_source_specifier")
        if source in (None, "self"):
            yield ("eds_cluster_config",), "a cluster of type EDS requires eds_cluster_config: {eds_config: {ads: {}}}"
        return
    if cluster.HasField("eds_cluster_config"):
        yield ("eds_cluster_config",), f"only clusters of type EDS have one, and this is of type {kind}"
    if kind == "ORIGINAL_DST":
        yield from _check_original_destination(cluster)
    else:
        yield from _check_endpoints(cluster.load_assignment, kind)


def _check_load_balancer(cluster: Any, kind: str) -> Faults:
    policies = type(cluster).LbPolicy
    if cluster.HasField("load_balancing_policy"):
        return
    if cluster.lb_policy == policies.LOAD_BALANCING_POLICY_CONFIG:
        yield ("lb_policy",), "LOAD_BALANCING_POLICY_CONFIG requires load_balancing_policy"
    if kind != "ORIGINAL_DST" and cluster.lb_policy == policies.CLUSTER_PROVIDED:
        yield ("lb_policy",), "CLUSTER_PROVIDED requires a cluster of type ORIGINAL_DST"
    elif kind == "ORIGINAL_DST" and cluster.lb_policy != policies.CLUSTER_PROVIDED:
        yield ("lb_policy",), "lb_policy must be CLUSTER_PROVIDED in a cluster of type ORIGINAL_DST"
    elif kind == "ORIGINAL_DST" and cluster.HasField("lb_subset_config"):
        yield ("lb_subset_config",), "cannot be combined with CLUSTER_PROVIDED"
    if cluster.lb_policy == policies.RING_HASH:
        ring = cluster.ring_hash_lb_config
        low, high = (
            getattr(ring, name).value if ring.HasField(name) else default
            for name, default in zip(("minimum_ring_size", "maximum_ring_size"), _DEFAULT_RING_SIZES, strict=True)
        )
        if low > high:
            yield ("ring_hash_lb_config",), f"minimum_ring_size ({low}) is above maximum_ring_size ({high})"
    elif cluster.lb_policy == policies.MAGLEV and cluster.maglev_lb_config.HasField("table_size"):
        size = cluster.maglev_lb_config.table_size.value
        if size <= 5_000_011 and not _is_prime(size):
            yield ("maglev_lb_config", "table_size"), f"must be a prime number, and {size} is none"


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _check_original_destination(cluster: Any) -> Faults:
    if cluster.HasField("load_assignment"):
        yield ("load_assignment",), "a cluster of type ORIGINAL_DST has no endpoints of its own"
    config = cluster.original_dst_lb_config
    if config.http_header_name and not config.use_http_header:
        yield ("original_dst_lb_config", "http_header_name"), "has an effect only with use_http_header: true"


def _check_endpoints(assignment: Any, kind: str) -> Faults:
    places = (
        (("load_assignment", "endpoints", group, "lb_endpoints", index), endpoint)
        for group, locality in enumerate(assignment.endpoints)
        for index, endpoint in enumerate(locality.lb_endpoints)
    )
    count = 0
    for place, endpoint in places:
        count += 1
        address = endpoint.endpoint.address.WhichOneof("address")
        socket_address = endpoint.endpoint.address.socket_address
        if kind != "STATIC":
            if address == "socket_address" and socket_address.resolver_name:
                yield place, f"clusters of type {kind} cannot have a resolver_name"
        elif address is None:
            yield place, "an endpoint without endpoint.address"
        elif address == "socket_address" and not socket_address.resolver_name:
            if not is_ip(socket_address.address):
                text = f"{socket_address.address!r} is not an IP address; hostnames need type: STRICT_DNS"
                yield (*place, "endpoint", "address", "socket_address", "address"), text
            elif socket_address.named_port:
                yield (*place, "endpoint", "address", "socket_address", "named_port"), "must be a port_value"
    if kind == "LOGICAL_DNS" and count != 1:
        yield ("load_assignment",), f"a cluster of type LOGICAL_DNS requires one endpoint, and this has {count}"


# -- listeners ---------------------------------------------------------------------------------------------------------


def _check_listener(listener: Any) -> Faults:
    if listener.HasField("api_listener"):
        return
    address = listener.address.socket_address
    if not listener.HasField("address"):
        if not listener.HasField("internal_listener"):
            yield (), "an address is required"
    elif listener.address.WhichOneof("address") == "socket_address":
        if not is_ip(address.address):
            yield ("address", "socket_address", "address"), f"{address.address!r} is not an IP address"
        if address.protocol == type(address).UDP:
            return
    if not listener.filter_chains and not listener.HasField("default_filter_chain"):
        yield ("filter_chains",), "at least one filter chain is required"
    if listener.HasField("filter_chain_matcher"):
        return
    matches: dict[bytes, int] = {}
    for index, chain in enumerate(listener.filter_chains):
        first = matches.setdefault(chain.filter_chain_match.SerializeToString(deterministic=True), index)
        if first != index:
            yield ("filter_chains", index), f"its filter_chain_match equals that of filter_chains[{first}]"


def _check_filter_chain(chain: Any) -> Faults:
    yield from _check_order("filters", chain.filters)
    for index, name in enumerate(chain.filter_chain_match.server_names):
        if "*" in name.removeprefix("*."):
            text = f"{name!r} has a wildcard that is not a whole first label such as *.example.com"
            yield ("filter_chain_match", "server_names", index), text


def _check_order(field: str, filters: Sequence[Any]) -> Faults:
    for index, item in enumerate(filters[:-1]):
        if name_in(item.typed_config.type_url) in TERMINAL_FILTERS:
            yield (field, index), f"{item.name} is a terminal filter; no filter can follow it"


def _check_http_manager(manager: Any) -> Faults:
    yield from _check_order("http_filters", manager.http_filters)
    if manager.strip_matching_host_port and manager.strip_any_host_port:
        yield ("strip_any_host_port",), "cannot be combined with strip_matching_host_port"
    if manager.use_remote_address.value and manager.original_ip_detection_extensions:
        yield ("original_ip_detection_extensions",), "cannot be combined with use_remote_address"
    yield from _check_upgrades(manager.upgrade_configs)


def _check_upgrades(upgrades: Iterable[Any]) -> Faults:
    types = [upgrade.upgrade_type.lower() for upgrade in upgrades]
    for name, count in Counter(types).items():
        if count > 1:
            yield ("upgrade_configs", len(types) - 1 - types[::-1].index(name)), f"{name} is listed {count} times"


# -- routes ------------------------------------------------------------------------------------------------------------


def _check_route_configuration(config: Any) -> Faults:
    yield from _check_headers(config)
    hosts: dict[str, str] = {}
    for index, host in enumerate(config.virtual_hosts):
        for place, domain in enumerate(host.domains):
            other = hosts.setdefault(domain.lower(), host.name)
            if other != host.name:
                yield ("virtual_hosts", index, "domains", place), f"virtual host {other} also has {domain}"


def _check_virtual_host(host: Any) -> Faults:
    yield from _check_headers(host)
    for name, count in Counter(domain.lower() for domain in host.domains).items():
        if count > 1:
            yield ("domains",), f"{name} is listed {count} times"


def _check_headers(message: Any) -> Faults:
    """Yield the headers that a message must not change, and the values that are not valid format strings."""
    for field in ("request_headers_to_add", "response_headers_to_add"):
        for index, option in enumerate(getattr(message, field)):
            if _is_fixed(option.header.key):
                yield (field, index, "header", "key"), f"{option.header.key} cannot be changed"
            fault = find_format_fault(option.header.value)
            if fault:
                yield (field, index, "header", "value"), fault
    for field in ("request_headers_to_remove", "response_headers_to_remove"):
        for index, name in enumerate(getattr(message, field)):
            if _is_fixed(name):
                yield (field, index), f"{name} cannot be removed"


def _is_fixed(name: str) -> bool:
    return name.startswith(":") or name.lower() == "host"


def _check_route_action(action: Any) -> Faults:
    rewrites = [
        name
        for name, is_set in (
            ("prefix_rewrite", bool(action.prefix_rewrite)),
            ("regex_rewrite", action.HasField("regex_rewrite")),
            ("path_rewrite_policy", action.HasField("path_rewrite_policy")),
        )
        if is_set
    ]
    if len(rewrites) > 1:
        yield (rewrites[-1],), f"cannot be combined with {' and '.join(rewrites[:-1])}"
    yield from _check_upgrades(action.upgrade_configs)
    for index, upgrade in enumerate(action.upgrade_configs):
        if upgrade.HasField("connect_config") and upgrade.upgrade_type.upper() != "CONNECT":
            yield ("upgrade_configs", index, "connect_config"), "requires upgrade_type: CONNECT"


def _check_mirror(policy: Any) -> Faults:
    if bool(policy.cluster) == bool(policy.cluster_header):
        yield (), "exactly one of cluster and cluster_header is required"


def _check_weights(weighted: Any) -> Faults:
    if not any(item.weight.value for item in weighted.clusters):
        yield ("clusters",), "the sum of the weights must be above 0"


def _check_retries(policy: Any) -> Faults:
    backoff = policy.retry_back_off
    if not backoff.HasField("max_interval"):
        return
    if backoff.max_interval.ToNanoseconds() < backoff.base_interval.ToNanoseconds():
        yield ("retry_back_off", "max_interval"), "must not be below base_interval"


def _check_regex(matcher: Any) -> Faults:
    if len(matcher.regex) <= _LONGEST_REGEX and "{" not in matcher.regex and "\\p" not in matcher.regex.lower():
        fault = find_fault(matcher.regex)
        if fault:
            yield ("regex",), f"{fault} (RE2 syntax)"


# -- extensions --------------------------------------------------------------------------------------------------------


def _check_extension(extension: Any) -> Faults:
    if extension.WhichOneof("config_type") is None:
        yield (), "typed_config is required"


def _check_log_format(form: Any) -> Faults:
    if form.formatters:
        return
    for place, text in (
        (("text_format",), form.text_format),
        (("text_format_source", "inline_string"), form.text_format_source.inline_string),
        *((("json_format", name), value.string_value) for name, value in form.json_format.fields.items()),
    ):
        fault = find_format_fault(text)
        if fault:
            yield place, fault


def _check_local_rate_limit(limit: Any) -> Faults:
    for place, bucket in (
        (("token_bucket",), limit.token_bucket),
        *((("descriptors", index, "token_bucket"), item.token_bucket) for index, item in enumerate(limit.descriptors)),
    ):
        if bucket.HasField("fill_interval") and bucket.fill_interval.ToMilliseconds() < 50:
            yield (*place, "fill_interval"), "must be at least 50ms"


def _check_jwt(config: Any) -> Faults:
    for index, rule in enumerate(config.rules):
        name = rule.requires.provider_name
        if name and name not in config.providers:
            yield ("rules", index, "requires", "provider_name"), f"no provider is named {name}"


def _check_lua(config: Any) -> Faults:
    if config.inline_code and config.HasField("default_source_code"):
        yield ("inline_code",), "cannot be combined with default_source_code"


def _check_server_tls(context: Any) -> Faults:
    fields = {field.name for field, _ in context.common_tls_context.ListFields()}
    if not any(name.startswith(("tls_certificate", "custom_tls_certificate")) for name in fields):
        yield ("common_tls_context",), "a server needs certificates: tls_certificate_sds_secret_configs is empty"


def _check_range(cidr: Any) -> Faults:
    if not is_ip(cidr.address_prefix):
        yield ("address_prefix",), f"{cidr.address_prefix!r} is not an IP address"


_RULES: Mapping[str, Callable[[Any], Faults]] = {
    "envoy.config.accesslog.v3.AccessLog": _check_extension,
    "envoy.config.cluster.v3.Cluster": check_cluster,
    "envoy.config.core.v3.CidrRange": _check_range,
    "envoy.config.core.v3.SubstitutionFormatString": _check_log_format,
    "envoy.config.core.v3.TransportSocket": _check_extension,
    "envoy.config.listener.v3.Filter": _check_extension,
    "envoy.config.listener.v3.FilterChain": _check_filter_chain,
    "envoy.config.listener.v3.Listener": _check_listener,
    "envoy.config.listener.v3.ListenerFilter": _check_extension,
    "envoy.config.route.v3.RetryPolicy": _check_retries,
    "envoy.config.route.v3.Route": _check_headers,
    "envoy.config.route.v3.RouteAction": _check_route_action,
    "envoy.config.route.v3.RouteAction.RequestMirrorPolicy": _check_mirror,
    "envoy.config.route.v3.RouteConfiguration": _check_route_configuration,
    "envoy.config.route.v3.VirtualHost": _check_virtual_host,
    "envoy.config.route.v3.WeightedCluster": _check_weights,
    "envoy.config.route.v3.WeightedCluster.ClusterWeight": _check_headers,
    "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication": _check_jwt,
    "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit": _check_local_rate_limit,
    "envoy.extensions.filters.http.lua.v3.Lua": _check_lua,
    _HTTP_MANAGER: _check_http_manager,
    f"{_HTTP_MANAGER.rpartition('.')[0]}.HttpFilter": _check_extension,
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext": _check_server_tls,
    "envoy.type.matcher.v3.RegexMatcher": _check_regex,
}
"""Mapping from the full name of a type to the function that yields its faults."""
