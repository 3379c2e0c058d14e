"""The properties of a sidecar that affect single hosts of a segment."""

from __future__ import annotations

from pilot.envoy.route.route_dependencies import RouteDependencies
from pilot.envoy.route.sidecar.segment import HostKey
from pilot.envoy.route.sidecar.segment_traits import SegmentTraits, SegmentTraitsKey, virtual_host_key
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet

HOSTS = 500


class Name(str):
    """A host name that counts how often it is compared."""

    comparisons = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Name.comparisons += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


def test_dropped_domains_of_many_hosts_are_found_in_few_comparisons() -> None:
    names = [Name(f"h{n}.example.com") for n in range(HOSTS)]
    key = SegmentTraitsKey(
        dns_domain="",
        families=AddressFamiliesFacet(),
        namespace="",
        labels=frozenset(),
        destinations=(),
        consistent_hashes=(),
        dropped_domains=tuple(((name, 80), (f"{name}:80",)) for name in names),
        attempt_count=False,
        forwarded_host=False,
    )
    traits = SegmentTraits.of(key)
    dropped = [
        virtual_host_key(HostKey(name, port, None), RouteDependencies(), 80, traits).dropped_domains
        for name in names
        for port in (80, 8080)
    ]
    assert dropped == [domains for name in names for domains in ((f"{name}:80",), ())]
    assert Name.comparisons < 10 * HOSTS
