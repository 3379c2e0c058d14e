"""Derives the filters that count requests and connections as Telemetries say."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import any_pb2

from pilot.derive import derived
from pilot.model.config.extension_provider import ExtensionProvider
from pilot.model.facets import ListeningFacet, TelemetryFacet
from pilot.model.inputs import Mesh
from pilot.model.telemetry_features import STATS
from pilot.model.views.telemetry_providers import telemetry_provider
from pilot.translate.statistics import build_statistics


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
