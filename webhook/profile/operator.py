"""The settings of an IstioOperator, as far as injection follows from them."""

from __future__ import annotations

from typing import Any

Plain = dict[str, Any]


def values_of(operator: Plain) -> Plain:
    """Returns the values that an IstioOperator gives: its own, and what its hub, tag and components say where they say nothing."""
    spec = operator.get("spec") or {}
    found: Plain = {**(spec.get("values") or {})}
    hub_and_tag = {key: spec[key] for key in ("hub", "tag") if spec.get(key) is not None}
    found["global"] = {**hub_and_tag, **(found.get("global") or {})}
    if spec.get("revision"):
        found.setdefault("revision", spec["revision"])
    cni = ((spec.get("components") or {}).get("cni") or {}).get("enabled")
    own_cni = found.get("cni") or {}
    pilot_cni = {
        key: value for key, value in (("enabled", cni), ("provider", own_cni.get("provider"))) if value is not None
    }
    if pilot_cni:
        pilot = found.get("pilot") or {}
        found["pilot"] = {**pilot, "cni": {**pilot_cni, **(pilot.get("cni") or {})}}
    return found


def mesh_config_of(operator: Plain) -> Plain:
    """Returns the mesh config that an IstioOperator gives."""
    return (operator.get("spec") or {}).get("meshConfig") or {}
