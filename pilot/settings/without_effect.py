"""Environment variables without effect: those that only istiod reads, and unknown ones.

`VARIABLES` maps each variable that istiod reads to the reason, which the warning states.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pilot.lib.suggestion import did_you_mean

_CACHED = "a resource stays cached while any proxy uses it, and is rebuilt only when it changes"
VARIABLES: Mapping[str, str] = {
    "PILOT_PUSH_THROTTLE": "pushes are limited by size; set PILOT_PUSH_BYTES_IN_FLIGHT",
    "PILOT_XDS_CACHE_SIZE": _CACHED,
    "PILOT_ENABLE_XDS_CACHE": _CACHED,
    "PILOT_ENABLE_CDS_CACHE": _CACHED,
    "PILOT_ENABLE_RDS_CACHE": _CACHED,
    "ENABLE_LAZY_SIDECAR_EVALUATION": "a Sidecar is always evaluated when a proxy first needs it",
    "PILOT_STATUS_MAX_WORKERS": "statuses are written one at a time, and only if they differ",
    "MUTEX_PROFILE_FRACTION": "mutex profiles are not supported",
    "MCS_API_GROUP": "ServiceExports and ServiceImports are always read from multicluster.x-k8s.io",
    "MCS_API_VERSION": "ServiceExports and ServiceImports are always read as v1alpha1",
    "PILOT_ENABLE_AGENTGATEWAY": "agentgateway is not supported",
    "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL": "only pilot-agent reads it; set it in the environment of the agent",
}


def without_effect(environ: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable in `VARIABLES` that is set."""
    return [f"environment variable {name} has no effect: {why}" for name, why in VARIABLES.items() if environ.get(name)]


_PREFIX = re.compile("(PILOT|AMBIENT|ENABLE|ISTIO)_")
_OF_SERVICE = re.compile(
    r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)", re.ASCII
)
"""Variables that Kubernetes sets for each Service of the namespace, such as istio-ingressgateway."""
_MOST = 20
"""Maximum number of warnings about unknown variables."""


def unknown(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return a warning for each variable with a prefix of istiod's variables that is none of `names`."""
    known_names = {*names, *VARIABLES}
    others = [name for name in sorted(environ) if _PREFIX.match(name) and name not in known_names]
    others = [name for name in others if not _OF_SERVICE.fullmatch(name)]
    return [
        f"unknown environment variable {name} has no effect{did_you_mean(name, known_names)}" for name in others[:_MOST]
    ]


def paragraph() -> str:
    """Return the part of the settings reference that lists the variables in `VARIABLES`."""
    head = "\nistiod reads the following variables. pyistiod ignores them, and logs a warning if one is set.\n\n"
    head += "| variable | reason |\n|---|---|\n"
    return head + "".join(f"| `{name}` | {why} |\n" for name, why in VARIABLES.items())
