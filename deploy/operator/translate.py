"""An IstioOperator as values of Helm's charts, for those who leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from deploy.operator.components import WantedComponent, chart_values, wanted
from deploy.operator.inputs import STANDARD_GATEWAYS
from deploy.operator.manifest import prepared
from deploy.operator.tree import Plain, at
from webhook.template import go_yaml


class Release(NamedTuple):
    """What Helm is to install: a name, its chart, the namespace and the values."""

    name: str
    chart: str
    namespace: str
    values: Plain

    @property
    def file(self) -> str:
        """Returns the name of the file of its values."""
        return f"{self.name}-values.yaml"

    def write(self, folder: str) -> None:
        """Writes its values into a folder."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / self.file).write_text(go_yaml.dump(self.values), "utf-8")

    def lines(self, folder: str | None) -> Iterator[str]:
        """Yields the command that installs it, and its values where they are not in a file."""
        place = f"{folder}/{self.file}" if folder is not None else self.file
        yield f"# helm upgrade --install {self.name} charts/{self.chart} --namespace {self.namespace} --create-namespace -f {place}"
        if folder is None:
            yield f"---\n{go_yaml.dump(self.values)}"


def translated(user: Plain, warn: Callable[[str], None], force: bool = False) -> list[Release]:
    """Returns the releases that install what an IstioOperator switches on, in the order in which they are to be installed.
    `warn` is told what values cannot say. SettingsError where the settings are wrong."""
    operator = prepared(user, warn, None, force)
    releases = []
    for chosen in wanted(operator):
        for place in _untranslated(chosen):
            path = f"spec.components.{chosen.component.field}.k8s.{place}"
            warn(f"{path} of {chosen.name} patches objects, which values cannot say: use a post-renderer")
        values = {
            key: value for key, value in chart_values(operator, chosen).items() if value not in ({}, [], "", None)
        }
        name = (
            chosen.name
            if chosen.component.field in STANDARD_GATEWAYS
            else _release(chosen, at(operator, "spec.values.revision"))
        )
        releases.append(Release(name, chosen.component.chart, chosen.namespace, values))
    return releases


def _release(chosen: WantedComponent, revision: str | None) -> str:
    name = {"Base": "istio-base", "Pilot": "istiod", "Cni": "istio-cni", "Ztunnel": "ztunnel"}[chosen.component.name]
    return f"{name}-{revision}" if revision and chosen.component.name == "Pilot" else name


def _untranslated(chosen: WantedComponent) -> Iterator[str]:
    """Yields the k8s settings that the values have nothing of, or only a part."""
    for key, value in chosen.settings.items():
        if value in (None, {}, []) or key == "replicaCount":
            continue
        if key == "service" and set(value) <= {"ports"} and chosen.component.field in STANDARD_GATEWAYS:
            continue
        if key == "hpaSpec" and set(value) <= {"minReplicas", "maxReplicas"}:
            continue
        yield key
