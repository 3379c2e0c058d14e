"""The settings of an IstioOperator that affect injection."""

from __future__ import annotations

from typing import Any

Plain = dict[str, Any]


def values_of(operator: Plain) -> Plain:
    """Return the values of an IstioOperator. The hub, tag, revision and components in its spec are used as defaults."""
    spec = operator.get("spec") or {}
    values: Plain = {**(spec.get("values") or {})}
    hub_and_tag = {key: spec[key] for key in ("hub", "tag") if spec.get(key) is not None}
    values["global"] = {**hub_and_tag, **(values.get("global") or {})}
    if spec.get("revision"):
        values.setdefault("revision", spec["revision"])
    cni = ((spec.get("components") or {}).get("cni") or {}).get("enabled")
    own_cni = values.get("cni") or {}
    pilot_cni = {
        key: value for key, value in (("enabled", cni), ("provider", own_cni.get("provider"))) if value is not None
    }
    if pilot_cni:
        pilot = values.get("pilot") or {}
        values["pilot"] = {**pilot, "cni": {**pilot_cni, **(pilot.get("cni") or {})}}
    return values


def mesh_config_of(operator: Plain) -> Plain:
    """Return the meshConfig of an IstioOperator."""
    return (operator.get("spec") or {}).get("meshConfig") or {}
