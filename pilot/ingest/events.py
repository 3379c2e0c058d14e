"""Batches as the event counters of metrics: what came, changed and went, by kind."""
from __future__ import annotations

from pilot.ingest.batch import Commit
from pilot.ingest.catalogue import KINDS
from pilot.lib.metrics import Metrics

_KINDS = {kind.table: kind for kind in KINDS}
# The registry's kinds have names of their own in its counter
_REGISTRY = {"services": "Services", "pods": "Pods", "nodes": "Nodes", "namespaces": "Namespaces", "endpoint_slices": "EndpointSlice"}


def count_events(metrics: Metrics, commit: Commit) -> None:
    """Add a batch to the counters. Mesh config and proxies are not objects and do not count."""
    for (table, event), count in commit.events.items():
        if table in _REGISTRY:
            metrics.registry_event(_REGISTRY[table], event, count)
        elif table in _KINDS:
            metrics.config_event(_KINDS[table].name, event, count)
