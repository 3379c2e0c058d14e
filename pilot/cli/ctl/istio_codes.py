"""Codes of istioctl's analysis messages: https://istio.io/latest/docs/reference/config/analysis/."""

from __future__ import annotations

from typing import Any

_NOT_FOUND = "IST0101"
_INVALID = "IST0106"
# istioctl's code for each of ours. If it depends on the kind of the object, the kind follows the code.
_CODES = {
    "internal-error": "IST0001",
    "deprecated-field": "IST0002",
    "credential-not-found": _NOT_FOUND,
    "destination-not-found": _NOT_FOUND,
    "gateway-not-found": _NOT_FOUND,
    "host-not-found Sidecar": _NOT_FOUND,
    "namespace-not-found": _NOT_FOUND,
    "provider-not-found": _NOT_FOUND,
    "subset-not-found": _NOT_FOUND,
    "target-not-found": _NOT_FOUND,
    "selector-without-workloads Gateway": _NOT_FOUND,
    "host-claimed VirtualService": "IST0109",
    "sidecar-shadowed": "IST0110",
    "port-not-said": "IST0112",
    "mtls-conflict": "IST0113",
    "bad-regex": "IST0122",
    "bad-annotation": "IST0125",
    "selector-without-workloads": "IST0127",
    "unreachable-route": "IST0130",
    "unreachable-match": "IST0131",
    "host-not-served": "IST0132",
    "gateway-conflict": "IST0145",
    "claims-not-verified": "IST0149",
    "policy-shadowed Telemetry": "IST0160",
    "credential-unusable Gateway": "IST0161",
    "port-not-found Gateway": "IST0162",
    "subset-without-endpoints": "IST0173",
    "host-not-found DestinationRule": "IST0174",
    "protocol-conflict": "IST0177",
}
_OWN = frozenset(("certificate-expired", "refused"))
"""Codes of errors that are not in the schema of an object, and that istioctl does not report."""


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
