"""Fields that the packaged messages lack, as proxies and the comparison with a reference see them."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2, json_format

from pilot.config.networking.destination_rule import RetryBudget
from pilot.envoy.cluster.policy.connection_pool import apply_circuit_breakers
from pilot.envoy.newer_fields import NO_CONTEXT_PROPAGATION, add_newer_fields
from pilot.envoy.well_known_types import pack


def _shown(packed: any_pb2.Any) -> dict[str, object]:
    plain = json_format.MessageToDict(packed)
    add_newer_fields(packed, plain)
    return plain


def test_the_interval_of_a_retry_budget_is_sent() -> None:
    cluster = cluster_pb2.Cluster(name="c")
    apply_circuit_breakers(cluster, None, RetryBudget(budget_interval=1_500_000_000))
    (threshold,) = _shown(pack(cluster))["circuitBreakers"]["thresholds"]  # type: ignore[index]
    assert threshold["retryBudget"]["budgetInterval"] == "1.500s"


def test_booleans_in_nested_messages_are_shown() -> None:
    tracing = hcm_pb2.HttpConnectionManager.Tracing.FromString(NO_CONTEXT_PROPAGATION.encode())
    assert _shown(pack(hcm_pb2.HttpConnectionManager(tracing=tracing)))["tracing"] == {"noContextPropagation": True}
