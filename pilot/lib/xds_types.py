"""The catalogue of xDS resource types. To add a type, add an entry to `TYPES`."""

from __future__ import annotations

from typing import NamedTuple

_GOOGLE = "type.googleapis.com/"
CLUSTER = _GOOGLE + "envoy.config.cluster.v3.Cluster"
ENDPOINT = _GOOGLE + "envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = _GOOGLE + "envoy.config.listener.v3.Listener"
ROUTE = _GOOGLE + "envoy.config.route.v3.RouteConfiguration"
SECRET = _GOOGLE + "envoy.extensions.transport_sockets.tls.v3.Secret"
EXTENSION = _GOOGLE + "envoy.config.core.v3.TypedExtensionConfig"
NAME_TABLE = _GOOGLE + "istio.networking.nds.v1.NameTable"
PROXY_CONFIG = _GOOGLE + "istio.mesh.v1alpha1.ProxyConfig"
ADDRESS = _GOOGLE + "istio.workload.Address"
WORKLOAD = _GOOGLE + "istio.workload.Workload"
AUTHORIZATION = _GOOGLE + "istio.security.Authorization"
HEALTH = _GOOGLE + "istio.v1.HealthInformation"
DEBUG_PAGE = "istio.io/debug"
"""The type URL of debug pages over xDS."""
DEBUG = "istio.io/debug/"
"""Prefix of type URLs of debug pages that have their own message types."""
LAST = 8


class XdsType(NamedTuple):
    """Properties of one resource type.

    short_name: the name in metrics and commands, such as "cds".
    rank: position in a push. Envoy warms clusters before their endpoints, and listeners before their routes.
    is_named: proxies receive only the resources that they name. For other types, they receive all resources unless a
        delta request names some.
    tells_removals: delta responses list names for which there is no resource.
    has_placeholder: if there is no resource with a requested name, an empty resource with this name is sent.
    needs_identity: streams without a verified identity receive no resources.
    has_nonces: requests with a nonce acknowledge or reject a response.
    is_answered: False for types that proxies only report.
    has_versions: resources have versions. A client that reconnects does not receive versions that it already has.
    has_aliases: a requested name may be an alias for resources with other names, all of which are sent.

    https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#eventual-consistency-considerations
    """

    url: str
    short_name: str
    rank: int = LAST
    is_named: bool = False
    tells_removals: bool = True
    has_placeholder: bool = False
    needs_identity: bool = False
    has_nonces: bool = True
    is_answered: bool = True
    has_versions: bool = False
    has_aliases: bool = False


TYPES = (
    XdsType(CLUSTER, "cds", rank=0),
    # Without a placeholder, a cluster without endpoints would never finish warming.
    XdsType(ENDPOINT, "eds", rank=1, is_named=True, tells_removals=False, has_placeholder=True),
    XdsType(LISTENER, "lds", rank=2),
    XdsType(ROUTE, "rds", rank=3, is_named=True),
    XdsType(SECRET, "sds", rank=4, is_named=True, needs_identity=True),
    XdsType(ADDRESS, "wds", rank=5, has_versions=True, has_aliases=True),
    XdsType(WORKLOAD, "wds", rank=6, has_versions=True, has_aliases=True),
    XdsType(AUTHORIZATION, "wads", rank=7),
    # Envoy drops extensions that it no longer uses, and must not lose one that it uses:
    # https://github.com/envoyproxy/envoy/issues/32823
    XdsType(EXTENSION, "ecds", is_named=True, tells_removals=False),
    XdsType(NAME_TABLE, "nds"),
    XdsType(PROXY_CONFIG, "pcds"),
    XdsType(_GOOGLE + "envoy.config.bootstrap.v3.Bootstrap", "bds"),
    XdsType(HEALTH, HEALTH, is_answered=False),
)
_BY_URL = {entry.url: entry for entry in TYPES}
BY_SHORT_NAME: dict[str, str] = {}
for _entry in TYPES:
    if _entry.short_name != _entry.url:
        BY_SHORT_NAME.setdefault(_entry.short_name, _entry.url)
"""Type URLs by short name. If types share a short name, the first one applies."""


def find_type(url: str) -> XdsType:
    """Return the properties of a type.

    Types that are not in `TYPES` have the properties of debug pages, or the defaults.
    """
    entry = _BY_URL.get(url)
    if entry is None:
        return XdsType(url, url, needs_identity=is_debug_request(url), has_nonces=not is_debug_request(url))
    return entry


def is_debug_request(url: str) -> bool:
    """Return whether a type URL identifies a debug page. Requests for debug pages are answered once, and create no
    subscription."""
    return url == DEBUG_PAGE or url.startswith(DEBUG)


def is_object(url: str) -> bool:
    """Return whether a type URL identifies a kind of configuration object. Such URLs have the format
    group/version/Kind."""
    return url.count("/") == 2 and not is_debug_request(url)


def short_name(url: str) -> str:
    """Return the short name of a type URL, such as "cds", or the URL itself if it has none."""
    entry = _BY_URL.get(url)
    return url if entry is None else entry.short_name
