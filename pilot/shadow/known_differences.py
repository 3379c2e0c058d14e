"""Differences with a known reason, each with its verdict and where it is documented."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pilot.envoy.http_filter.jwt_authn import UNUSABLE_KEYS
from pilot.shadow.resource_comparison import LeafDifference, ResourceDifference, Side

DOCUMENT = "docs/differences.md"


class ShadowVerdict(enum.Enum):
    """The meaning of a difference."""

    INTENDED = "intended"
    LEAK = "reference leaks"
    UNEXPLAINED = "unexplained"


class KnownDifference(NamedTuple):
    """A known difference: resources of a type all of whose differing leaves have a matching path.

    `applies` checks the values.

    `section` is the heading in docs/differences.md.
    """

    id: str
    verdict: ShadowVerdict
    section: str
    summary: str
    kinds: frozenset[str]
    path: re.Pattern[str]
    applies: Callable[[Sequence[LeafDifference]], bool] = lambda leaves: True

    @property
    def link(self) -> str:
        return f"{DOCUMENT}#{self.section.lower().replace(' ', '-')}"

    def explains(self, difference: ResourceDifference) -> bool:
        """Return whether all leaves of a difference are of this kind."""
        return (
            difference.side is Side.BOTH
            and difference.kind in self.kinds
            and all(self.path.search(leaf.path) for leaf in difference.leaves)
            and self.applies(difference.leaves)
        )


_SUBJECTS = re.compile(r"match(Typed)?SubjectAltNames")
_DOMAINS = re.compile(r"^virtualHosts\[[^\n]*\.domains\[")
_GROUPS = re.compile(r"^groups\[")
_MATCH = re.compile(r"\.matches\[\d+\]$")
_BODY_SIZE = re.compile(r"maxDirectResponseBodySizeBytes$")
_KEY_SET = re.compile(r"\.localJwks\.inlineString$")
_LOOKUP_FAMILY = re.compile(r"^dnsLookupFamily$")
_HEALTH = re.compile(r"\.healthStatus$")
_ATTEMPT_COUNT = re.compile(r"^virtualHosts\[[^\n]*\]\.includeRequestAttemptCount$")
_ADDRESS = re.compile(r"[\d.]+\d|\[[\da-f:]+\]")


def _kinds(*names: str) -> frozenset[str]:
    return frozenset(names)


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        "stale-identities",
        ShadowVerdict.LEAK,
        "Security",
        "the reference keeps the identities of endpoints that are gone as valid subjects",
        _kinds("cds"),
        _SUBJECTS,
        lambda leaves: all(leaf.derived is None for leaf in leaves),
    ),
    KnownDifference(
        "serviceentry-address-family",
        ShadowVerdict.INTENDED,
        "Routing",
        "routes name the address of a ServiceEntry in a family of the proxy",
        _kinds("rds"),
        _DOMAINS,
        lambda leaves: all(_ADDRESS.match(str(leaf.reference or leaf.derived)) for leaf in leaves),
    ),
    KnownDifference(
        "ztunnel-http-conditions",
        ShadowVerdict.INTENDED,
        "Security",
        "a DENY rule for a ztunnel ignores conditions on HTTP requests, and denies more",
        _kinds("wads"),
        _GROUPS,
        lambda leaves: any(leaf.reference == {} and _MATCH.search(leaf.path) for leaf in leaves),
    ),
    KnownDifference(
        "direct-response-size",
        ShadowVerdict.LEAK,
        "Routing",
        "an EnvoyFilter changes the reference's maximum size of direct responses for other proxies, too",
        _kinds("rds", "lds"),
        _BODY_SIZE,
    ),
    KnownDifference(
        "lookup-family",
        ShadowVerdict.LEAK,
        "Routing",
        "the reference sends the cluster of the first proxy to all proxies with IPv4 addresses, with or without IPv6",
        _kinds("cds"),
        _LOOKUP_FAMILY,
        lambda leaves: {leaves[0].reference, leaves[0].derived} == {"ALL", "V4_ONLY"},
    ),
    KnownDifference(
        "draining-endpoint",
        ShadowVerdict.LEAK,
        "Routing",
        "the reference read the EndpointSlice before the Service, and does not drain the endpoint",
        _kinds("eds"),
        _HEALTH,
        lambda leaves: all((leaf.reference, leaf.derived) == ("UNHEALTHY", "DRAINING") for leaf in leaves),
    ),
    KnownDifference(
        "attempt-count",
        ShadowVerdict.LEAK,
        "Routing",
        "the reference sends the routes of the first proxy to all proxies, whatever their proxyHeaders.attemptCount",
        _kinds("rds"),
        _ATTEMPT_COUNT,
    ),
    KnownDifference(
        "key-sets",
        ShadowVerdict.INTENDED,
        "Security",
        "the shadow fetches no key sets of token issuers",
        _kinds("lds"),
        _KEY_SET,
        lambda leaves: all(leaf.derived == UNUSABLE_KEYS for leaf in leaves),
    ),
)


def find_known(difference: ResourceDifference) -> KnownDifference | None:
    """Return the known difference that explains a resource, or None."""
    return next((reason for reason in KNOWN if reason.explains(difference)), None)
