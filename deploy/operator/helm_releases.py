"""Converts an IstioOperator to values of Helm charts, for migration to Helm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from deploy.operator.components import EnabledComponent, chart_values, enabled_components
from deploy.operator.inputs import STANDARD_GATEWAYS, UserSettings
from deploy.operator.manifest import resolve_operator
from deploy.operator.settings_tree import Plain, value_at
from gotemplate import go_yaml


class Release(NamedTuple):
    """A Helm release: its name, chart, namespace and values."""

    name: str
    chart: str
    namespace: str
    values: Plain

    @property
    def file(self) -> str:
        """The name of the release's values file."""
        return f"{self.name}-values.yaml"

    def write(self, folder: str) -> None:
        """Write the release's values file into a folder."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / self.file).write_text(go_yaml.dump(self.values), "utf-8")

    def lines(self, folder: str | None) -> Iterator[str]:
        """Yield the command that installs the release. If `folder` is None, yield the release's values, too."""
        place = f"{folder}/{self.file}" if folder is not None else self.file
        install = f"helm upgrade --install {self.name} charts/{self.chart}"
        yield f"# {install} --namespace {self.namespace} --create-namespace -f {place}"
        if folder is None:
            yield f"---\n{go_yaml.dump(self.values)}"


def helm_releases(user: UserSettings, warn: Callable[[str], None], force: bool = False) -> list[Release]:
    """Return the releases for the components that an IstioOperator enables, in installation order.

    `warn` is called for settings that Helm values cannot express. Raises SettingsError if the settings are invalid.
    """
    operator = resolve_operator(user.plain, warn, None, force, origin=user.origin)
    releases = []
    for enabled in enabled_components(operator):
        for place in _untranslated(enabled):
            path = f"spec.components.{enabled.component.field}.k8s.{place}"
            warn(f"{path} of {enabled.name} modifies objects, which values cannot express; use a post-renderer")
        values = {
            key: value for key, value in chart_values(operator, enabled).items() if value not in ({}, [], "", None)
        }
        name = (
            enabled.name
            if enabled.component.field in STANDARD_GATEWAYS
            else _release(enabled, value_at(operator, "spec.values.revision"))
        )
        releases.append(Release(name, enabled.component.chart, enabled.namespace, values))
    return releases


def _release(enabled: EnabledComponent, revision: str | None) -> str:
    name = {"Base": "istio-base", "Pilot": "istiod", "Cni": "istio-cni", "Ztunnel": "ztunnel"}[enabled.component.name]
    return f"{name}-{revision}" if revision and enabled.component.name == "Pilot" else name


def _untranslated(enabled: EnabledComponent) -> Iterator[str]:
    """Yield the k8s settings that Helm values cannot express, or can express only in part."""
    for key, value in enabled.k8s.items():
        if value in (None, {}, []) or key == "replicaCount":
            continue
        if key == "service" and set(value) <= {"ports"} and enabled.component.field in STANDARD_GATEWAYS:
            continue
        if key == "hpaSpec" and set(value) <= {"minReplicas", "maxReplicas"}:
            continue
        yield key
