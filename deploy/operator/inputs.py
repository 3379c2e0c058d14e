"""Merges files, flags and a profile into one IstioOperator, with the values for the charts."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from deploy.chart.chart import installation_folder
from deploy.operator.errors import SettingsError
from deploy.operator.input_origin import InputOrigin
from deploy.operator.schema import TYPES
from deploy.operator.settings_tree import PathError, Plain, assign, deep_merge, value_at, with_value
from pilot.ingest.files.documents import Document, SyntaxFault, read_documents
from pilot.lib.suggestion import did_you_mean

API_VERSION, KIND = "install.istio.io/v1alpha1", "IstioOperator"
DEFAULT_PROFILE = "default"
STANDARD_GATEWAYS = {"ingressGateways": "istio-ingressgateway", "egressGateways": "istio-egressgateway"}
_NEXT = re.compile(rf"(?<!\\),\s*(?=(?:{'|'.join(TYPES['Spec'].fields)})(?:[.\[][^=,]*)?=)")
"""A comma before another assignment."""
_FROM_SPEC = (
    ("hub", "global.hub"),
    ("tag", "global.tag"),
    ("revision", "revision"),
    ("compatibilityVersion", "compatibilityVersion"),
)


class UserSettings(NamedTuple):
    """An IstioOperator that files and assignments describe, and the origin of its fields."""

    plain: Plain
    origin: InputOrigin


def read_operator(text: str, name: str) -> Plain:
    """Parse the content of a file as an IstioOperator.

    Raises SettingsError if it is invalid or contains several documents.
    """
    operator: Plain = _read_document(text, name).plain
    return operator


def _read_document(text: str, name: str) -> Document:
    """Return the document of an IstioOperator, as `read_operator` does."""
    try:
        parsed = read_documents(text.encode(), name)
    except SyntaxFault as fault:
        raise SettingsError(f"{name}:{fault.line}: {fault}") from fault
    documents = [document.plain for document in parsed]
    if len(documents) > 1:
        raise SettingsError(f"{name}: contains {len(documents)} documents; expected one IstioOperator")
    operator = documents[0] if documents else {}
    if not isinstance(operator, dict):
        raise SettingsError(f"{name}: expected an IstioOperator object")
    values = operator.keys() & (TYPES["Values"].fields.keys() - TYPES["Spec"].fields.keys())
    if "kind" not in operator and "spec" not in operator and values:
        raise SettingsError(
            f"{name}: no kind: {KIND}; Helm values belong below spec.values: {', '.join(sorted(values))}"
        )
    for field, expected in (("kind", KIND), ("apiVersion", API_VERSION)):
        if operator.get(field, expected) != expected:
            raise SettingsError(f"{name}: {field}: {operator[field]} is not supported; expected {expected}")
    for field in operator:
        if field in TYPES["Spec"].fields and field not in TYPES[KIND].fields:
            line = parsed[0].line_of(field)
            raise SettingsError(f"{name}:{line}: {field}: did you mean spec.{field}? check the indentation")
    plain = {key: value for key, value in operator.items() if key != "spec" or value is not None}
    return parsed[0]._replace(plain=plain) if parsed else Document(plain, 1)


def user_settings(files: Sequence[tuple[str, str]], assignments: Sequence[str]) -> UserSettings:
    """Merge files in order, and then assignments. Each file is given as its name and its content.

    Raises SettingsError if a file or assignment is invalid.
    """
    settings: Plain = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {}, "spec": {}}
    documents = tuple((name, _read_document(text, name)) for name, text in files)
    for _, document in documents:
        settings = deep_merge(settings, document.plain)
    settings = copy.deepcopy(settings)
    for assignment in assignments:
        _refuse_list(assignment)
        try:
            assign(settings, assignment)
        except PathError as error:
            raise SettingsError(str(error)) from error
    paths = tuple(assignment.partition("=")[0].strip() for assignment in assignments)
    return UserSettings(settings, InputOrigin(documents, paths))


def _refuse_list(assignment: str) -> None:
    """Raise SettingsError if an assignment consists of several ones that commas separate, as Helm accepts them."""
    parts = _NEXT.split(assignment)
    if len(parts) > 1:
        raise SettingsError(f"--set takes one setting: use {' '.join(f'--set {shlex.quote(part)}' for part in parts)}")


def read_profile(name: str, folder: Traversable | None = None, place: str = "") -> Plain:
    """Return a profile merged over the default profile. Raises SettingsError if it does not exist.

    `place` precedes the message: it is the place of the setting, as `InputOrigin.place` returns it.
    """
    profiles = _profiles(folder)
    default = _profile(profiles, DEFAULT_PROFILE)
    return default if name == DEFAULT_PROFILE else deep_merge(default, _profile(profiles, name, place))


def profile_names(folder: Traversable | None = None) -> list[str]:
    """Return the names of all profiles. Raises SettingsError if the folder with the profiles does not exist."""
    return _names(_profiles(folder))


def _profiles(folder: Traversable | None) -> Traversable:
    """Return the folder with the profiles. Raises SettingsError if it does not exist."""
    profiles = (folder or installation_folder()) / "profiles"
    if not profiles.is_dir():
        raise SettingsError(f"folder {profiles} does not exist; charts and profiles are expected in its parent")
    return profiles


def _names(profiles: Traversable) -> list[str]:
    return sorted(entry.name.removesuffix(".yaml") for entry in profiles.iterdir() if entry.name.endswith(".yaml"))


def _profile(profiles: Traversable, name: str, place: str = "") -> Plain:
    file = profiles / f"{name}.yaml"
    if "/" in name or not file.is_file():
        names = _names(profiles)
        suggestion = did_you_mean(name, names)
        raise SettingsError(f"{place}spec.profile: unknown profile {name}{suggestion}; available: {', '.join(names)}")
    return read_operator(file.read_text("utf-8"), f"{name}.yaml")


def merge_inputs(
    user: Plain, folder: Traversable | None = None, platform: str = "", origin: InputOrigin = InputOrigin()
) -> Plain:
    """Return an IstioOperator merged over its profile. Its values contain all settings of both.

    `platform` is the detected platform of the cluster, or "". The user's setting takes precedence over it. As in
    istioctl, `values` takes precedence over hub, tag and revision. However, spec.meshConfig takes precedence over
    values.meshConfig, and components.cni over values.pilot.cni.enabled. Raises SettingsError if the profile does not
    exist.
    """
    profile = value_at(user, "spec.profile", DEFAULT_PROFILE)
    if not isinstance(profile, str):
        raise SettingsError(f"spec.profile: expected the name of a profile, got {profile}")
    operator = _with_gateway_names(
        deep_merge(
            deep_merge(read_profile(profile, folder, origin.place("spec.profile")), _platform_layer(platform)), user
        )
    )
    if (
        platform == "gke"
        and value_at(operator, "spec.components.cni") is not None
        and not value_at(user, "spec.components.cni.namespace")
    ):
        operator = with_value(
            operator, ("spec", "components", "cni", "namespace"), "kube-system"
        )  # where GKE allows critical node agents
    user_values = value_at(user, "spec.values", {})
    spec = operator["spec"] if isinstance(operator.get("spec"), dict) else {}
    for place, key in _FROM_SPEC:
        if spec.get(place) is not None:
            operator = with_value(operator, ("spec", "values", *key.split(".")), spec[place])
    operator = with_value(
        operator, ("spec", "values", "pilot", "enabled"), value_at(spec, "components.pilot.enabled", False) is True
    )
    if isinstance(user_values, dict):
        operator = with_value(operator, ("spec", "values"), deep_merge(operator["spec"]["values"], user_values))
        operator = with_value(
            operator,
            ("spec", "values", "pilot", "cni", "enabled"),
            value_at(spec, "components.cni.enabled", False) is True,
        )
    if isinstance(spec.get("meshConfig"), dict):
        mesh = deep_merge(value_at(operator, "spec.values.meshConfig", {}), spec["meshConfig"])
        operator = with_value(operator, ("spec", "values", "meshConfig"), mesh)
    return operator


def _platform_layer(platform: str) -> Plain:
    return {"spec": {"values": {"global": {"platform": platform}}}} if platform else {}


def _with_gateway_names(operator: Plain) -> Plain:
    """Return the settings with the standard name added to every gateway without a name."""
    for component, name in STANDARD_GATEWAYS.items():
        gateways = value_at(operator, f"spec.components.{component}")
        if isinstance(gateways, list):
            complete = [
                {**gateway, "name": gateway.get("name") or name} if isinstance(gateway, dict) else gateway
                for gateway in gateways
            ]
            operator = with_value(operator, ("spec", "components", component), complete)
    return operator


def system_namespace(operator: Plain) -> str:
    """Return the namespace of the control plane."""
    return str(value_at(operator, "spec.values.global.istioNamespace") or "istio-system")


def with_unvalidated_values(operator: Plain) -> Plain:
    """Return the settings with spec.unvalidatedValues merged over the values."""
    unvalidated: Any = value_at(operator, "spec.unvalidatedValues")
    return (
        with_value(operator, ("spec", "values"), deep_merge(operator["spec"]["values"], unvalidated))
        if isinstance(unvalidated, dict)
        else operator
    )
