"""Files, flags and a profile → one IstioOperator whose values the charts can be given."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from typing import Any

from deploy.folder import installation_folder
from deploy.operator.errors import SettingsError
from deploy.operator.tree import PathError, Plain, at, lay_over, put, set_text
from pilot.ingest.documents import SyntaxFault, read_documents

DEFAULT_PROFILE = "default"
STANDARD_GATEWAYS = {"ingressGateways": "istio-ingressgateway", "egressGateways": "istio-egressgateway"}
_FROM_SPEC = (
    ("hub", "global.hub"),
    ("tag", "global.tag"),
    ("revision", "revision"),
    ("compatibilityVersion", "compatibilityVersion"),
)


def read_operator(text: str, name: str) -> Plain:
    """Returns the one IstioOperator of a file's text. SettingsError where it has several, or cannot be read."""
    try:
        documents = [document.plain for document in read_documents(text.encode(), name)]
    except SyntaxFault as fault:
        raise SettingsError(f"{name}:{fault.line}: {fault}") from fault
    if len(documents) > 1:
        raise SettingsError(f"{name}: it has {len(documents)} documents, but a file holds only one IstioOperator")
    found = documents[0] if documents else {}
    if not isinstance(found, dict):
        raise SettingsError(f"{name}: expected an IstioOperator, got no mapping")
    return {key: value for key, value in found.items() if key != "spec" or value is not None}


def user_settings(files: Sequence[tuple[str, str]], assignments: Sequence[str]) -> Plain:
    """Returns what users say: files as (name, text), each over the one before, and assignments over them. SettingsError where they are wrong."""
    found: Plain = {"apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator", "metadata": {}, "spec": {}}
    for name, text in files:
        found = lay_over(found, read_operator(text, name))
    found = copy.deepcopy(found)
    for assignment in assignments:
        try:
            set_text(found, assignment)
        except PathError as error:
            raise SettingsError(str(error)) from error
    return found


def read_profile(name: str, folder: Traversable | None = None) -> Plain:
    """Returns a profile over the default one. SettingsError where there is none of that name."""
    profiles = (folder or installation_folder()) / "profiles"
    found = _profile(profiles, DEFAULT_PROFILE)
    return found if name == DEFAULT_PROFILE else lay_over(found, _profile(profiles, name))


def profile_names(folder: Traversable | None = None) -> list[str]:
    """Returns the names of all profiles. SettingsError where the folder has no place for them."""
    profiles = (folder or installation_folder()) / "profiles"
    if not profiles.is_dir():
        raise SettingsError(f"there is no folder {profiles}")
    return _names(profiles)


def _names(profiles: Traversable) -> list[str]:
    return sorted(entry.name.removesuffix(".yaml") for entry in profiles.iterdir() if entry.name.endswith(".yaml"))


def _profile(profiles: Traversable, name: str) -> Plain:
    file = profiles / f"{name}.yaml"
    if "/" in name or not file.is_file():
        known = ", ".join(_names(profiles)) if profiles.is_dir() else "none"
        raise SettingsError(f"spec.profile: there is no profile {name}; there are: {known}")
    return read_operator(file.read_text("utf-8"), f"{name}.yaml")


def merge_inputs(user: Plain, folder: Traversable | None = None, platform: str = "") -> Plain:
    """Returns an IstioOperator with everything that its profile and itself say in its values. SettingsError where there is no such profile.
    `platform` is what the cluster was seen to be, "" for nothing special; the user's word counts more.

    What `values` says comes before hub, tag and revision, but spec.meshConfig comes before values.meshConfig, and whether pods need no
    init container (values.pilot.cni.enabled) is what components.cni says, as with istioctl.
    """
    profile = at(user, "spec.profile", DEFAULT_PROFILE)
    if not isinstance(profile, str):
        raise SettingsError(f"spec.profile: expected the name of a profile, got {profile}")
    found = _named(lay_over(lay_over(read_profile(profile, folder), _platform_layer(platform)), user))
    if (
        platform == "gke"
        and at(found, "spec.components.cni") is not None
        and not at(user, "spec.components.cni.namespace")
    ):
        found = put(
            found, ("spec", "components", "cni", "namespace"), "kube-system"
        )  # where that platform lets node agents be critical
    said = at(user, "spec.values", {})
    spec = found["spec"] if isinstance(found.get("spec"), dict) else {}
    for place, key in _FROM_SPEC:
        if spec.get(place) is not None:
            found = put(found, ("spec", "values", *key.split(".")), spec[place])
    found = put(found, ("spec", "values", "pilot", "enabled"), at(spec, "components.pilot.enabled", False) is True)
    if isinstance(said, dict):
        found = put(found, ("spec", "values"), lay_over(found["spec"]["values"], said))
        found = put(
            found, ("spec", "values", "pilot", "cni", "enabled"), at(spec, "components.cni.enabled", False) is True
        )
    if isinstance(spec.get("meshConfig"), dict):
        mesh = lay_over(at(found, "spec.values.meshConfig", {}), spec["meshConfig"])
        found = put(found, ("spec", "values", "meshConfig"), mesh)
    return found


def _platform_layer(platform: str) -> Plain:
    return {"spec": {"values": {"global": {"platform": platform}}}} if platform else {}


def _named(operator: Plain) -> Plain:
    """Returns the settings with the standard name for every gateway that has none."""
    for component, name in STANDARD_GATEWAYS.items():
        gateways = at(operator, f"spec.components.{component}")
        if isinstance(gateways, list):
            named = [
                {**gateway, "name": gateway.get("name") or name} if isinstance(gateway, dict) else gateway
                for gateway in gateways
            ]
            operator = put(operator, ("spec", "components", component), named)
    return operator


def system_namespace(operator: Plain) -> str:
    """Returns the namespace that the control plane is looked for in."""
    return str(at(operator, "spec.values.global.istioNamespace") or "istio-system")


def unvalidated(operator: Plain) -> Plain:
    """Returns the settings with the values that no schema is to check over the others."""
    more: Any = at(operator, "spec.unvalidatedValues")
    return (
        put(operator, ("spec", "values"), lay_over(operator["spec"]["values"], more))
        if isinstance(more, dict)
        else operator
    )
