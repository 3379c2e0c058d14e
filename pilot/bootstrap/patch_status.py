"""What becomes of EnvoyFilters' patches, as istiod's metric of it has it, where PILOT_ENVOY_FILTER_STATS asks for that."""

from __future__ import annotations

from pilot.envoy.plans.patch_problems import patch_results
from pilot.lib.metrics import Metrics
from pilot.mesh.proxies.patches import configured_patch
from pilot.mesh.tables.database import Mesh

# What istiod's metric calls the things that are patched; of others it does not count patches.
_WORDS = {
    "CLUSTER": "cluster",
    "LISTENER": "listener",
    "LISTENER_FILTER": "listenerfilter",
    "FILTER_CHAIN": "filterchain",
    "NETWORK_FILTER": "networkfilter",
    "HTTP_FILTER": "httpfilter",
    "ROUTE_CONFIGURATION": "route",
    "HTTP_ROUTE": "route",
    "VIRTUAL_HOST": "vhost",
}
_Series = tuple[str, str, str]


class PatchStatus:
    """The statuses that were told last."""

    def __init__(self, db: Mesh, metrics: Metrics) -> None:
        self._db, self._metrics = db, metrics
        self._told: frozenset[_Series] = frozenset()

    def check(self) -> None:
        """Tells the metrics what became of the patches; a series that is so no more is 0."""
        found = frozenset(self._series())
        for series in self._told - found:
            self._metrics.envoy_filter(*series, 0)
        for series in found - self._told:
            self._metrics.envoy_filter(*series, 1)
        self._told = found

    def _series(self) -> list[_Series]:
        series = []
        for key, applied in patch_results(self._db).items():
            patch = configured_patch(self._db, key)
            if patch is not None and (word := _WORDS.get(patch.apply_to)):
                series.append((f"{key.filter.namespace}/{key.filter.name}", word, "applied" if applied else "error"))
        return series
