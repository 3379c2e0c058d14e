"""Derives the filters that count requests and connections as Telemetries say."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import any_pb2

from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.derive import derived
from pilot.envoy.statistics import build_statistics
from pilot.mesh.model.facets import ListeningFacet, TelemetryFacet
from pilot.mesh.model.telemetry_features import STATS
from pilot.mesh.tables.database import Mesh
from pilot.mesh.telemetry.providers import telemetry_provider


def statistics(db: Mesh, listening: ListeningFacet) -> tuple[any_pb2.Any, ...]:
    """Returns the configuration of each filter that counts on one side of a proxy; () where its build has none. No node of its own."""
    return () if STATS in listening.lacks else side_statistics(db, listening.telemetry, listening.side)


@derived
def side_statistics(db: Mesh, telemetry: TelemetryFacet, side: str) -> tuple[any_pb2.Any, ...]:
    """Returns the configurations by what Telemetries say."""
    return tuple(_build(db, telemetry, side))


def _build(db: Mesh, telemetry: TelemetryFacet, side: str) -> Iterator[any_pb2.Any]:
    for rules in telemetry.metrics:
        provider = telemetry_provider(db, rules.provider)
        if isinstance(provider, ExtensionProvider) and provider.prometheus is not None:
            yield build_statistics(rules, outbound=side == "outbound")
