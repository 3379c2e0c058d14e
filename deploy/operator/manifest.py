"""An IstioOperator → the objects of its installation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from deploy.chart.chart import ChartError, read_chart
from deploy.chart.render import render
from deploy.folder import installation_folder
from deploy.operator.components import WantedComponent, chart_values, wanted
from deploy.operator.errors import SettingsError, said
from deploy.operator.inputs import merge_inputs, unvalidated
from deploy.operator.overlays import apply_overlays
from deploy.operator.settings import apply_settings
from deploy.operator.tree import Plain, at
from deploy.operator.validate import problems_of
from pilot.config.problem import Severity
from webhook.template import go_yaml

_ORDER = (
    ("CustomResourceDefinition",),
    ("ServiceAccount", "ClusterRole", "Role"),
    ("ClusterRoleBinding", "RoleBinding"),
    ("ValidatingWebhookConfiguration",),
    ("ConfigMap",),
    (),
    ("HorizontalPodAutoscaler",),
    ("Service",),
)
_PLACE = {kind: place for place, kinds in enumerate(_ORDER) for kind in kinds}
_OTHERS = _ORDER.index(())


class Installation(NamedTuple):
    """An IstioOperator with its profile, and the objects of each component that it switches on."""

    operator: Plain
    components: tuple[tuple[WantedComponent, list[Plain]], ...]

    def objects(self, only: Iterable[str] = ()) -> list[Plain]:
        """Returns all objects, or those of the components that are named, in the order in which an API server can take them."""
        chosen = set(only)
        found = [
            plain
            for component, objects in self.components
            if not chosen or component.component.name in chosen
            for plain in objects
        ]
        return in_order(found)


def in_order(objects: Iterable[Plain]) -> list[Plain]:
    """Returns objects in the order in which an API server can take them."""
    return sorted(objects, key=lambda plain: _PLACE.get(plain["kind"], _OTHERS))


def installation_of(
    user: Plain, warn: Callable[[str], None], folder: Traversable | None = None, force: bool = False, platform: str = ""
) -> Installation:
    """Returns the installation that a user's IstioOperator means. `warn` is told what has no effect. SettingsError where it is wrong;
    `force`: only where it cannot be rendered. `platform` is what the cluster was seen to be."""
    folder = folder or folder_of(user)
    operator = prepared(user, warn, folder, force, platform)
    found = []
    for chosen in wanted(operator):
        try:
            chart = read_chart(folder / "charts" / chosen.component.chart)
            objects = render(chart, chart_values(operator, chosen), chosen.namespace)
        except ChartError as error:
            raise SettingsError(str(error)) from error
        found.append((chosen, apply_overlays(apply_settings(objects, chosen), chosen, warn)))
    return Installation(operator, tuple(found))


def prepared(
    user: Plain, warn: Callable[[str], None], folder: Traversable | None, force: bool, platform: str = ""
) -> Plain:
    """Returns a user's IstioOperator with its profile, checked, and with all values that its charts are given. SettingsError where it is wrong."""
    operator = merge_inputs(user, folder or folder_of(user), platform)
    _validate(operator, warn, force)
    return unvalidated(operator)


def folder_of(user: Plain) -> Traversable:
    """Returns the folder with the charts and profiles that an IstioOperator names; this package's own where it names none."""
    path: Any = at(user, "spec.installPackagePath", "")
    return installation_folder(path if isinstance(path, str) else "")


def _validate(operator: Plain, warn: Callable[[str], None], force: bool) -> None:
    problems = problems_of(operator)
    errors = [p for p in problems if p.severity is Severity.ERROR]
    switches = [p for p in errors if p.path.startswith("spec.components.") and p.path.endswith(".enabled")]
    if errors and (switches or not force):
        raise SettingsError(said(errors))
    for problem in problems:
        warn(f"{problem.path}: {problem.message}")


def yaml_text(plain: Any) -> str:
    """Returns plain data as YAML, keys sorted."""
    return go_yaml.dump(plain)


def manifest_text(objects: Iterable[Plain]) -> str:
    """Returns objects as YAML documents, the same text for the same objects."""
    return "---\n".join(go_yaml.dump(plain) for plain in objects)
