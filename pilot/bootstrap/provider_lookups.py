"""Names the provider of a problem with a service that an extension provider of the mesh config names, as istiod's metric of it does."""

from __future__ import annotations

import re

from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.config.problem import Problem
from pilot.mesh.analysis.mesh import MESH, SERVICE_NOT_FOUND
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

_PLACE = re.compile(r"extensionProviders\[(\d+)\]", re.ASCII)
_WORDS = {
    "zipkin": "zipkin",
    "datadog": "datadog",
    "skywalking": "skywalking",
    "opentelemetry": "opentelemetry",
    "opencensus": "opencensus",
    "lightstep": "lightstep",
    "envoy_http_als": "envoyHTTPAls",
    "envoy_tcp_als": "envoyTCPAls",
    "envoy_otel_als": "envoyOtelAls",
    "sds": "externalSds",
}


def find_lookup(db: Mesh, problem: Problem) -> str:
    """Returns the type of the provider whose service a problem says is not there; "" for any other problem, and for types that are not counted."""
    found = _PLACE.fullmatch(problem.path) if problem.object == MESH and problem.code == SERVICE_NOT_FOUND else None
    providers = mesh_config(db).extension_providers
    return _word(providers[int(found[1])]) if found is not None and int(found[1]) < len(providers) else ""


def _word(provider: ExtensionProvider) -> str:
    return next((word for field, word in _WORDS.items() if getattr(provider, field) is not None), "")
