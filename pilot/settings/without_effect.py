"""Variables of istiod that have no effect here, and why: who sets one is told so in the log."""

from __future__ import annotations

from collections.abc import Mapping

_KEPT = "what proxies are to have is kept for as long as one of them has it, and made again where it changed"
VARIABLES: Mapping[str, str] = {
    "PILOT_PUSH_THROTTLE": "pushes are bounded by their bytes, which PILOT_PUSH_BYTES_IN_FLIGHT sets",
    "PILOT_XDS_CACHE_SIZE": _KEPT,
    "PILOT_ENABLE_XDS_CACHE": _KEPT,
    "PILOT_ENABLE_CDS_CACHE": _KEPT,
    "PILOT_ENABLE_RDS_CACHE": _KEPT,
    "ENABLE_LAZY_SIDECAR_EVALUATION": "what a Sidecar selects is worked out when a proxy needs it",
    "PILOT_STATUS_MAX_WORKERS": "statuses are written one after the other, and only where they differ",
    "MUTEX_PROFILE_FRACTION": "there are no profiles of locks",
    "MCS_API_GROUP": "ServiceExports and ServiceImports are those of multicluster.x-k8s.io",
    "MCS_API_VERSION": "ServiceExports and ServiceImports are read as v1alpha1",
    "PILOT_ENABLE_AGENTGATEWAY": "there is no configuration for agentgateway",
    "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL": "it is a variable of proxies: their agents read it",
}


def without_effect(environ: Mapping[str, str]) -> list[str]:
    """Returns a warning for each of these variables that is set."""
    return [f"environment variable {name} has no effect: {why}" for name, why in VARIABLES.items() if environ.get(name)]


def paragraph() -> str:
    """Returns what the documentation says of them."""
    head = "These variables of istiod have no effect; who sets one is told so in the log, and why: "
    return head + ", ".join(f"`{name}`" for name in VARIABLES) + ".\n"
