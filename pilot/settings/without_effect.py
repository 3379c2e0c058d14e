"""Environment variables and flags without effect: those that only Istio's programs have, and unknown variables.

`VARIABLES` maps each variable that istiod reads to the reason, which the warning states. `AGENT_VARIABLES` does the
same for Istio's agent, and `AGENT_FLAGS` for flags that releases of Istio's agent have or had.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from pilot.lib.suggestion import LONGEST, did_you_mean

_CACHED = "a resource stays cached while any proxy uses it, and is rebuilt only when it changes"
_LAZY = "a Sidecar is always evaluated when a proxy first needs it"
_PLATFORM = "the cloud platform is not detected; set the locality with labels of the workload"
VARIABLES: Mapping[str, str] = {
    "PILOT_PUSH_THROTTLE": "pushes are limited by size; set PILOT_PUSH_BYTES_IN_FLIGHT",
    "PILOT_XDS_CACHE_SIZE": _CACHED,
    "PILOT_ENABLE_XDS_CACHE": _CACHED,
    "PILOT_ENABLE_CDS_CACHE": _CACHED,
    "PILOT_ENABLE_RDS_CACHE": _CACHED,
    "PILOT_XDS_CACHE_INDEX_CLEAR_INTERVAL": _CACHED,
    "ENABLE_LAZY_SIDECAR_EVALUATION": _LAZY,
    "PILOT_CONVERT_SIDECAR_SCOPE_CONCURRENCY": _LAZY,
    "PILOT_UNIFIED_SIDECAR_SCOPE": "there is only one way to evaluate a Sidecar",
    "AMBIENT_SCOPED_ADDRESS_PUSHES": "a change of an address only affects the proxies that use it",
    "ENABLE_VTPROTOBUF": "resources are serialized once, with the protobuf library of Python",
    "ISTIO_KUBE_CLIENT_CONTENT_TYPE": "objects are always read from API servers as JSON",
    "UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS": "there are no runtime assertions",
    "ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION": "agents always fetch Wasm modules for their Envoys",
    "K_REVISION": "responses do not name a revision of Cloud Run",
    "PILOT_STATUS_MAX_WORKERS": "statuses are written one at a time, and only if they differ",
    "MUTEX_PROFILE_FRACTION": "mutex profiles are not supported",
    "PILOT_ENABLE_AGENTGATEWAY": "agentgateway is not supported",
    "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL": "only pilot-agent reads it; set it in the environment of the agent",
}
AGENT_VARIABLES: Mapping[str, str] = {
    "CA_PROVIDER": "certificates are always requested with Istio's protocol",
    "CLOUD_PLATFORM": _PLATFORM,
    "GCP_METADATA": _PLATFORM,
    "GCP_ZONE": _PLATFORM,
    "GCP_QUOTA_PROJECT": _PLATFORM,
    "CREDENTIAL_IDENTITY_PROVIDER": "the certificate authority determines who issued a token",
    "DNS_FORWARD_PARALLEL": "nameservers are asked one after the other",
    "ENABLE_PROBE_KEEPALIVE_CONNECTIONS": "each probe has its own connection, as those of the kubelet",
    "ENVOY_SKIP_DEPRECATED_LOGS": "set the log level with --proxyLogLevel",
    "FILE_DEBOUNCE_DURATION": "files of certificates are read again when their content has changed",
    "HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED": "Envoy always removes fragments since the release that dropped "
    "its runtime feature",
    "ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION": "the agent always fetches Wasm modules for Envoy",
    "ISTIO_ENABLE_HTTP2_PROBING": "probes use HTTP/1.1",
    "ISTIO_ENVOY_ENABLE_CORE_DUMP": "set the limit of core dumps in the environment of the agent",
    "JWT_POLICY": "the token is always read from the file of the projected volume",
    "PEER_METADATA_DISCOVERY": "the control plane decides it by the filters that Envoy supports",
    "PROXY_CONFIG_XDS_AGENT": "trust bundles over xDS are not supported",
    "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION": "probes are sent to the address of the Pod, as those of the kubelet",
    "XDS_AUTH_PROVIDER": "the token is always that of the workload",
}


def _proxy_config(text: str) -> str:
    return f"set it in the ProxyConfig, for example with the variable PROXY_CONFIG='{text}'"


_NO_STS = "the agent exchanges no tokens"
_TRACER = "set the tracer in the ProxyConfig, for example with the variable PROXY_CONFIG="
AGENT_FLAGS: Mapping[str, str] = {
    "availabilityZone": "the control plane reads the locality from the labels of the node, or from the WorkloadEntry",
    "binaryPath": _proxy_config("binaryPath: /usr/local/bin/envoy"),
    "configPath": _proxy_config("configPath: ./etc/istio/proxy"),
    "connectTimeout": "set connectTimeout in the mesh config or in a DestinationRule",
    "controlPlaneAuthPolicy": _proxy_config("controlPlaneAuthPolicy: MUTUAL_TLS"),
    "controlPlaneBootstrap": _proxy_config("customConfigFile: /etc/istio/custom.json"),
    "customConfigFile": _proxy_config("customConfigFile: /etc/istio/custom.json"),
    "datadogAgentAddress": f"{_TRACER}'tracing: {{datadog: {{address: datadog-agent:8126}}}}'",
    "disableInternalTelemetry": "disable metrics with a Telemetry object: spec.metrics[0].overrides[0].disabled: true",
    "discoveryAddress": _proxy_config("discoveryAddress: istiod.istio-system.svc:15012"),
    "drainDuration": _proxy_config("drainDuration: 45s"),
    "envoyAccessLogService": _proxy_config("envoyAccessLogService: {address: access-log:15000}"),
    "envoyMetricsService": _proxy_config("envoyMetricsService: {address: metrics:15000}"),
    "id": "set the variables POD_NAME and POD_NAMESPACE, for example POD_NAME=web-1 POD_NAMESPACE=shop",
    "ip": "set the variable INSTANCE_IP, for example INSTANCE_IP=10.0.0.7",
    "pilotIdentity": "set the variable ISTIOD_SAN, for example ISTIOD_SAN=istiod.istio-system.svc",
    "profiling": "the agent serves no profiles",
    "proxyAdminPort": _proxy_config("proxyAdminPort: 15000"),
    "serviceregistry": "the agent needs no registry; set POD_NAME, POD_NAMESPACE and INSTANCE_IP outside Kubernetes",
    "statsdUdpAddress": "statsd is not supported; " + _proxy_config("envoyMetricsService: {address: metrics:15000}"),
    "statusPort": _proxy_config("statusPort: 15020"),
    "stsPort": _NO_STS,
    "templateFile": "set the variable ISTIO_BOOTSTRAP_OVERRIDE to a file to merge over the bootstrap, for example "
    "ISTIO_BOOTSTRAP_OVERRIDE=/etc/istio/bootstrap.yaml",
    "tokenManagerPlugin": _NO_STS,
    "trust-domain": "set the variable TRUST_DOMAIN, for example TRUST_DOMAIN=cluster.local",
    "zipkinAddress": f"{_TRACER}'tracing: {{zipkin: {{address: zipkin:9411}}}}'",
}


def without_effect(environ: Mapping[str, str], variables: Mapping[str, str] = VARIABLES) -> list[str]:
    """Return a warning for each variable that is set."""
    return [f"environment variable {name} has no effect: {why}" for name, why in variables.items() if environ.get(name)]


_PREFIX = re.compile("(PILOT|AMBIENT|ENABLE|ISTIO)_")
_OF_SERVICE = re.compile(
    r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)", re.ASCII
)
"""Variables that Kubernetes sets for each Service of the namespace, such as istio-ingressgateway."""
_SHORTEST, _ALMOST = 10, 0.95
"""Minimum length of names, and minimum similarity to a known name, for warnings about other prefixes."""
_MOST = 20
"""Maximum number of warnings about unknown variables."""


def unknown(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return a warning for each variable that is none of `names`, but has a prefix of istiod's variables or almost
    one of the names."""
    known_names = {*names, *VARIABLES}
    others = [name for name in sorted(environ) if name not in known_names and not _OF_SERVICE.fullmatch(name)]
    others = [name for name in others if _PREFIX.match(name) or _is_almost_known(name, known_names)]
    return [
        f"unknown environment variable {name} has no effect{did_you_mean(name, known_names)}" for name in others[:_MOST]
    ]


def _is_almost_known(name: str, known_names: Iterable[str]) -> bool:
    is_candidate = _SHORTEST <= len(name) <= LONGEST and "_" in name
    return is_candidate and bool(difflib.get_close_matches(name, known_names, n=1, cutoff=_ALMOST))


def paragraph(program: str = "istiod", variables: Mapping[str, str] = VARIABLES) -> str:
    """Return the part of a settings reference that lists variables without effect."""
    head = f"\n{program} reads the following variables. pyistiod ignores them, and logs a warning if one is set.\n\n"
    head += "| variable | reason |\n|---|---|\n"
    return head + "".join(f"| `{name}` | {why} |\n" for name, why in variables.items())
