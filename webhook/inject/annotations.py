"""The annotations of a Pod, and their validation. https://istio.io/latest/docs/reference/config/annotations/"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping

from gotemplate import go_json
from pilot.lib.flags import parse_bool
from webhook.inject.errors import InjectionError
from webhook.inject.proxy_config import check_override
from webhook.pod.quantity import canonical

INJECT = "sidecar.istio.io/inject"
PROXY_CONFIG = "proxy.istio.io/config"
STATUS_PORT = "status.sidecar.istio.io/port"
MERGE_METRICS = "prometheus.istio.io/merge-metrics"
INTERCEPTION_MODE = "sidecar.istio.io/interceptionMode"
NATIVE_SIDECAR = "sidecar.istio.io/nativeSidecar"
REWRITE_PROBES = "sidecar.istio.io/rewriteAppHTTPProbers"
STATUS = "sidecar.istio.io/status"
OVERRIDES = "proxy.istio.io/overrides"
TEMPLATES = "inject.istio.io/templates"
IMAGE_TYPE = "sidecar.istio.io/proxyImageType"
_INTERFACE = re.compile(r"[a-zA-Z][a-zA-Z0-9_.\-]*", re.ASCII)
_LONGEST_INTERFACE = 15


def check_annotations(annotations: Mapping[str, str]) -> None:
    """Raise InjectionError if any annotation is invalid. The message lists all invalid annotations."""
    errors = [
        f"invalid value '{annotations[name]}' for annotation '{name}': {fault}"
        for name in _CHECKS
        if name in annotations and (fault := annotation_fault(name, annotations[name]))
    ]
    if errors:
        head = f"{len(errors)} error{'s' if len(errors) > 1 else ''} occurred:\n\t* "
        raise InjectionError(head + "\n\t* ".join(errors))


def annotation_fault(name: str, value: str) -> str:
    """Return the reason that the value of an annotation is invalid, or ""."""
    try:
        check = _CHECKS.get(name) or _RENDERED.get(name)
        if check is not None:
            check(value)
    except ValueError as error:
        return str(error)
    return ""


def rendered_faults(annotations: Mapping[str, str]) -> str:
    """Return the invalid annotations among those that only templates read, each with the reason, or ""."""
    names = (name for name in _RENDERED if name in annotations)
    faults = ((name, annotation_fault(name, annotations[name])) for name in names)
    return "; ".join(f"annotation {name}: {fault}" for name, fault in faults if fault)


def _mode(value: str) -> None:
    if value not in ("REDIRECT", "TPROXY", "NONE"):
        raise ValueError(f"interceptionMode invalid, use REDIRECT,TPROXY,NONE: {value}")


def _number(text: str, bits: int) -> int:
    if not re.fullmatch(r"[0-9]+", text, re.ASCII):
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if int(text) >= 2**bits:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _port(text: str) -> None:
    try:
        _number(text.strip(), 16)
    except ValueError as error:
        form = "; list the ports of a range" if "-" in text.strip("-") else ""
        form = "; separate ports by commas" if ";" in text or " " in text.strip() else form
        raise ValueError(f"failed parsing port '{text}': {error}{form}") from error


def _status_port(text: str) -> None:
    try:
        _port(text)
    except ValueError as error:
        raise ValueError(f"status port invalid: {error}") from error


def _ports(parameter: str, any_port: bool = False) -> Callable[[str], None]:
    def check(text: str) -> None:
        if any_port and text == "*":
            return
        try:
            for port in text.strip().split(",") if text.strip() else ():
                _port(port)
        except ValueError as error:
            raise ValueError(f"{parameter} invalid: {error}") from error

    return check


def _ranges(parameter: str, any_range: bool = False) -> Callable[[str], None]:
    def check(text: str) -> None:
        if not text or (any_range and text == "*"):
            return
        for cidr in text.split(","):
            try:
                if "/" not in cidr or (cidr.rpartition("/")[2].startswith("0") and cidr.rpartition("/")[2] != "0"):
                    raise ValueError("no prefix length")
                ipaddress.ip_network(cidr, strict=False)
            except ValueError as error:
                raise ValueError(f"{parameter} invalid: failed parsing cidr '{cidr}': {error}") from error

    return check


def _interfaces(text: str) -> None:
    for name in (part.strip() for part in text.split(",")) if text else ():
        if not name:
            raise ValueError("empty interface name")
        if len(name) > _LONGEST_INTERFACE:
            raise ValueError(f'interface name "{name}" too long (max {_LONGEST_INTERFACE} chars)')
        if not _INTERFACE.fullmatch(name):
            raise ValueError(f'interface name "{name}" contains invalid characters')


def _amount(text: str) -> None:
    if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text):
        raise ValueError("value contains control characters")
    canonical(text)


def _uint32(text: str) -> None:
    _number(text, 32)


def _bool(text: str) -> None:
    parse_bool(text)


def _objects(form: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if not text:  # templates ignore it
            return
        try:
            value = go_json.loads(text)
        except ValueError as error:
            raise ValueError(f"not valid JSON; expected {form}") from error
        if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
            raise ValueError(f"not a JSON object of objects; expected {form}")

    return check


_CHECKS: dict[str, Callable[[str], None]] = {
    INTERCEPTION_MODE: _mode,
    STATUS_PORT: _status_port,
    "readiness.status.sidecar.istio.io/initialDelaySeconds": _uint32,
    "readiness.status.sidecar.istio.io/periodSeconds": _uint32,
    "readiness.status.sidecar.istio.io/failureThreshold": _uint32,
    "traffic.sidecar.istio.io/includeOutboundIPRanges": _ranges("includeIPRanges", any_range=True),
    "traffic.sidecar.istio.io/excludeOutboundIPRanges": _ranges("excludeIPRanges"),
    "traffic.sidecar.istio.io/includeInboundPorts": _ports("includeInboundPorts", any_port=True),
    "traffic.sidecar.istio.io/excludeInboundPorts": _ports("excludeInboundPorts"),
    "traffic.sidecar.istio.io/excludeOutboundPorts": _ports("excludeOutboundPorts"),
    "traffic.sidecar.istio.io/excludeInterfaces": _interfaces,
    "traffic.sidecar.istio.io/kubevirtInterfaces": _interfaces,
    "istio.io/reroute-virtual-interfaces": _interfaces,
    MERGE_METRICS: _bool,
    PROXY_CONFIG: check_override,
    "sidecar.istio.io/proxyCPU": _amount,
    "sidecar.istio.io/proxyMemory": _amount,
    "sidecar.istio.io/proxyCPULimit": _amount,
    "sidecar.istio.io/proxyMemoryLimit": _amount,
}
_RENDERED = {
    "sidecar.istio.io/userVolume": _objects('{"NAME": {VOLUME}}'),
    "sidecar.istio.io/userVolumeMount": _objects('{"NAME": {MOUNT}}'),
}
