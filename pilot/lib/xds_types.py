"""The types of xDS: what the protocol, a push, metrics and people's tools need to know of each. A new type is one entry of `TYPES`."""

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
"""The type URL of any debug page over xDS."""
DEBUG = "istio.io/debug/"
"""What the type URLs of those with messages of their own begin with."""
LAST = 8


class XdsType(NamedTuple):
    """One type.

    `short_name` is what metrics and people call it. `rank` is its place in a push: Envoy warms clusters before the endpoints that they
    wait for, and listeners before their routes. `is_named`: a proxy gets the resources that it names; of every other type it gets all that
    there is for it, unless a delta request names some. `tells_removals`: a delta response lists names that there is no resource for (any
    more). `has_stand_in`: such a name is answered by a message that has nothing but its name. `needs_identity`: a stream without a verified
    identity is answered as if there were no resources. `has_nonces`: requests that carry a nonce acknowledge or refuse a response.
    `is_answered`: False for what a proxy only reports. `has_versions`: resources say their version, and a client that comes back with it is not sent
    them again. `has_aliases`: a name may lead to resources of other names, all of which it then stands for.
    https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#eventual-consistency-considerations
    """

    url: str
    short_name: str
    rank: int = LAST
    is_named: bool = False
    tells_removals: bool = True
    has_stand_in: bool = False
    needs_identity: bool = False
    has_nonces: bool = True
    is_answered: bool = True
    has_versions: bool = False
    has_aliases: bool = False


TYPES = (
    XdsType(CLUSTER, "cds", rank=0),
    # Without the stand-in a cluster without endpoints would stay warming
    XdsType(ENDPOINT, "eds", rank=1, is_named=True, tells_removals=False, has_stand_in=True),
    XdsType(LISTENER, "lds", rank=2),
    XdsType(ROUTE, "rds", rank=3, is_named=True),
    XdsType(SECRET, "sds", rank=4, is_named=True, needs_identity=True),
    XdsType(ADDRESS, "wds", rank=5, has_versions=True, has_aliases=True),
    XdsType(WORKLOAD, "wds", rank=6, has_versions=True, has_aliases=True),
    XdsType(AUTHORIZATION, "wads", rank=7),
    # Envoy drops an extension that it no longer refers to, and must not lose one that it does: https://github.com/envoyproxy/envoy/issues/32823
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
"""The type URL of each short name; of types that share one, that of the first."""


def find_type(url: str) -> XdsType:
    """Returns the entry of a type URL; for a URL that has none, what holds for debug pages or for any type."""
    entry = _BY_URL.get(url)
    if entry is None:
        return XdsType(url, url, needs_identity=is_question(url), has_nonces=not is_question(url))
    return entry


def is_question(url: str) -> bool:
    """Returns whether requests of a type are answered once each, and watch nothing: those of debug pages."""
    return url == DEBUG_PAGE or url.startswith(DEBUG)


def is_object(url: str) -> bool:
    """Returns whether a type is of configuration objects: group/version/Kind."""
    return url.count("/") == 2 and not is_question(url)


def short_name(url: str) -> str:
    """Returns "cds" for the type URL of Cluster and so on; a type without a short name stays as it is."""
    entry = _BY_URL.get(url)
    return url if entry is None else entry.short_name
