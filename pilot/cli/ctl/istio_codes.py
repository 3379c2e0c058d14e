"""Codes of istioctl's analysis messages: https://istio.io/latest/docs/reference/config/analysis/."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_NOT_FOUND = "IST0101"
_INVALID = "IST0106"
_ANY_KIND = "schema.ValidationAnalyzer"
# istioctl's code for each of ours. If it depends on the kind of the object, the kind follows the code.
_CODES = {
    "internal-error": "IST0001",
    "deprecated-field": "IST0002",
    "kind-removed": "IST0002",
    "credential-not-found": _NOT_FOUND,
    "destination-not-found": _NOT_FOUND,
    "gateway-not-found": _NOT_FOUND,
    "host-not-found Sidecar": _NOT_FOUND,
    "namespace-not-found": _NOT_FOUND,
    "provider-not-found": _NOT_FOUND,
    "subset-not-found": _NOT_FOUND,
    "target-not-found": _NOT_FOUND,
    "selector-without-workloads Gateway": _NOT_FOUND,
    "namespace-not-injected": "IST0102",
    "proxy-missing": "IST0103",
    "misplaced-annotation": "IST0107",
    "unknown-annotation": "IST0108",
    "host-claimed VirtualService": "IST0109",
    "sidecar-shadowed": "IST0110",
    "default-sidecar-shadowed": "IST0111",
    "port-not-said": "IST0112",
    "mtls-conflict": "IST0113",
    "service-protocols-differ": "IST0116",
    "protocol-detected": "IST0118",
    "bad-regex": "IST0122",
    "injection-labels-conflict": "IST0123",
    "bad-annotation": "IST0125",
    "cluster-not-found": "IST0126",
    "selector-without-workloads": "IST0127",
    "no-ca-certificates": "IST0128",
    "no-ca-certificates-for-port": "IST0129",
    "unreachable-route": "IST0130",
    "unreachable-match": "IST0131",
    "host-not-served": "IST0132",
    "addresses-needed": "IST0134",
    "deprecated-annotation": "IST0135",
    "service-ports-differ": "IST0137",
    "certificate-shared": "IST0138",
    "webhook-overlap": "IST0139",
    "webhook-service-not-found": "IST0139",
    "subset-without-effect": "IST0140",
    "permission-missing": "IST0141",
    "kubernetes-too-old": "IST0142",
    "reserved-user": "IST0144",
    "gateway-conflict": "IST0145",
    "image-not-injected Deployment": "IST0146",
    "image-not-injected Pod": "IST0147",
    "injected-by-default": "IST0148",
    "claims-not-verified": "IST0149",
    "external-name-port": "IST0150",
    "relative-patch": "IST0151",
    "replace-without-effect": "IST0152",
    "add-without-effect": "IST0153",
    "remove-without-effect": "IST0154",
    "relative-patch-by-version": "IST0155",
    "version-not-served": "IST0156",
    "provider-not-set": "IST0157",
    "proxy-image-differs": "IST0158",
    "telemetry-overlap": "IST0159",
    "policy-shadowed Telemetry": "IST0160",
    "credential-unusable Gateway": "IST0161",
    "port-not-found Gateway": "IST0162",
    "bad-webhook-address": "IST0163",
    "webhook-address-is-ip": "IST0164",
    "internal-gateway": "IST0165",
    "selector-on-gateway": "IST0166",
    "sidecar-in-ambient-mode": "IST0167",
    "tracing-not-default": "IST0169",
    "services-differ": "IST0170",
    "negative-condition": "IST0171",
    "version-outdated": "IST0172",
    "subset-without-endpoints": "IST0173",
    "host-not-found DestinationRule": "IST0174",
    "definition-too-old": "IST0176",
    "protocol-conflict": "IST0177",
}
_OWN = frozenset(("certificate-expired", "refused"))
"""Codes of errors that are not in the schema of an object, and that istioctl does not report."""
_ANALYZERS: dict[str, tuple[str, ...]] = {
    "annotations.K8sAnalyzer": ("IST0107", "IST0108", "IST0125", "IST0135"),
    "applicationUID.Analyzer": ("IST0144",),
    "auth.AuthorizationPoliciesAnalyzer": ("IST0101 AuthorizationPolicy", "IST0127 AuthorizationPolicy"),
    "conditions.ConditionAnalyzer": ("IST0171",),
    "deployment.MultiServiceAnalyzer": ("IST0116", "IST0137"),
    "deprecation.DeprecationAnalyzer": ("IST0002",),
    "destinationrule.CaCertificateAnalyzer": ("IST0128", "IST0129"),
    "destinationrule.SubsetSelectPodAnalyzer": ("IST0173", "IST0174"),
    "envoyfilter.EnvoyPatchAnalyzer": ("IST0151", "IST0152", "IST0153", "IST0154", "IST0155"),
    "externalcontrolplane.ExternalControlPlaneAnalyzer": ("IST0163", "IST0164"),
    "gateway.CertificateAnalyzer": ("IST0138",),
    "gateway.ConflictingGatewayAnalyzer": ("IST0145", "IST0101 Gateway"),
    "gateway.IngressGatewayPortAnalyzer": ("IST0162", "IST0101 Gateway"),
    "gateway.SecretAnalyzer": ("IST0161", "IST0101 Gateway"),
    "injection.Analyzer": ("IST0102", "IST0103", "IST0123", "IST0148"),
    "injection.ImageAnalyzer": ("IST0158",),
    "injection.ImageAutoAnalyzer": ("IST0146", "IST0147"),
    "k8sgateway.CRDVersionAnalyzer": ("IST0176",),
    "k8sgateway.SelectorAnalyzer": ("IST0166",),
    "meshnetworks.MeshNetworksAnalyzer": ("IST0126",),
    "service.PortNameAnalyzer": ("IST0118", "IST0150"),
    "serviceentry.Analyzer": ("IST0134",),
    "serviceentry.ConflictingServiceEntryProtocolAnalyzer": ("IST0177",),
    "services.MultiClusterServiceAnalyzer": ("IST0170",),
    "sidecar.SelectorAnalyzer": ("IST0110", "IST0111", "IST0167", "IST0101 Sidecar", "IST0127 Sidecar"),
    "telemetry.DefaultSelectorAnalyzer": ("IST0160",),
    "telemetry.ProviderAnalyzer": ("IST0157",),
    "telemetry.SelectorAnalyzer": ("IST0159", "IST0101 Telemetry", "IST0127 Telemetry"),
    "virtualservice.ConflictingMeshGatewayHostsAnalyzer": ("IST0109",),
    "virtualservice.DestinationHostAnalyzer": ("IST0101 VirtualService", "IST0112", "IST0140"),
    "virtualservice.DestinationRuleAnalyzer": ("IST0101 VirtualService",),
    "virtualservice.GatewayAnalyzer": ("IST0101 VirtualService", "IST0132", "IST0165"),
    "virtualservice.JWTClaimRouteAnalyzer": ("IST0149",),
    "webhook.Analyzer": ("IST0139",),
    _ANY_KIND: (_INVALID, "IST0122", "IST0130", "IST0131"),
}
"""istioctl's codes for each of its analyzers. If only some kinds are meant, the kind follows the code."""
ANALYZER_NAMES = tuple(_ANALYZERS)


def istio_code(finding: dict[str, Any]) -> str:
    """Return istioctl's code for a finding, or "" if istioctl does not report it.

    Every other error in an object is what istioctl calls a schema validation error.
    """
    code, kind = finding["code"], finding.get("kind", "")
    return (
        _CODES.get(f"{code} {kind}")
        or _CODES.get(code)
        or (_INVALID if kind and finding["severity"] == "error" and code not in _OWN else "")
    )


def belongs_to(finding: dict[str, Any], analyzers: Collection[str]) -> bool:
    """Return whether one of some analyzers of istioctl reports a finding."""
    code = istio_code(finding)
    codes = (code, f"{code} {finding.get('kind', '')}")
    return bool(code) and any(not set(codes).isdisjoint(_ANALYZERS[name]) for name in analyzers)


def codes_of(analyzer: str) -> str:
    """Return the codes of an analyzer for people."""
    return ", ".join(dict.fromkeys(code.partition(" ")[0] for code in _ANALYZERS[analyzer]))
