"""Renders an IstioOperator into the objects of an installation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from deploy.chart.chart import ChartError, installation_folder, read_chart
from deploy.chart.render import render
from deploy.operator.components import EnabledComponent, chart_values, enabled_components
from deploy.operator.errors import SettingsError, describe_problems
from deploy.operator.input_origin import InputOrigin
from deploy.operator.inputs import merge_inputs, with_unvalidated_values
from deploy.operator.k8s_settings import apply_k8s_settings, find_overridden_replicas
from deploy.operator.overlays import apply_overlays
from deploy.operator.settings_tree import Plain, value_at
from deploy.operator.validate import validate_operator
from gotemplate import go_yaml
from pilot.config.problem import Severity

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
_POSITION = {kind: place for place, kinds in enumerate(_ORDER) for kind in kinds}
_DEFAULT_POSITION = _ORDER.index(())


class Installation(NamedTuple):
    """An IstioOperator merged with its profile, and the objects of each enabled component."""

    operator: Plain
    components: tuple[tuple[EnabledComponent, list[Plain]], ...]

    def objects(self, only: Iterable[str] = ()) -> list[Plain]:
        """Return the objects of all components in an order that an API server accepts.

        If `only` is not empty, only the objects of these components are returned.
        """
        names = set(only)
        selected = (objects for enabled, objects in self.components if not names or enabled.component.name in names)
        return in_apply_order(plain for objects in selected for plain in objects)


def in_apply_order(objects: Iterable[Plain]) -> list[Plain]:
    """Return objects in an order that an API server accepts."""
    return sorted(objects, key=lambda plain: _POSITION.get(plain["kind"], _DEFAULT_POSITION))


def render_installation(
    user: Plain,
    warn: Callable[[str], None],
    folder: Traversable | None = None,
    force: bool = False,
    platform: str = "",
    origin: InputOrigin = InputOrigin(),
) -> Installation:
    """Return the installation for a user's IstioOperator.

    `warn` is called for settings that have no effect. `platform` is the detected platform of the cluster, and `origin`
    that of the user's settings. Raises SettingsError if the settings are invalid. With `force`, only settings that
    cannot be rendered raise it.
    """
    folder = folder or package_folder(user)
    operator = resolve_operator(user, warn, folder, force, platform, origin)
    components = []
    for enabled in enabled_components(operator):
        try:
            chart = read_chart(folder / "charts" / enabled.component.chart)
            objects = render(chart, chart_values(operator, enabled), enabled.namespace)
        except ChartError as error:
            raise SettingsError(str(error)) from error
        objects = apply_overlays(apply_k8s_settings(objects, enabled), enabled, warn)
        if problem := find_overridden_replicas(objects, enabled):
            warn(describe_problems([problem], origin))
        components.append((enabled, objects))
    return Installation(operator, tuple(components))


def resolve_operator(
    user: Plain,
    warn: Callable[[str], None],
    folder: Traversable | None,
    force: bool,
    platform: str = "",
    origin: InputOrigin = InputOrigin(),
) -> Plain:
    """Return a user's IstioOperator merged with its profile, with all values for its charts. It is validated.

    Raises SettingsError if it is invalid.
    """
    operator = merge_inputs(user, folder or package_folder(user), platform, origin)
    _validate(operator, warn, force, origin)
    return with_unvalidated_values(operator)


def package_folder(user: Plain) -> Traversable:
    """Return the folder with charts and profiles that an IstioOperator specifies. The default is the folder of this
    package."""
    path: Any = value_at(user, "spec.installPackagePath", "")
    return installation_folder(path if isinstance(path, str) else "")


def _validate(operator: Plain, warn: Callable[[str], None], force: bool, origin: InputOrigin) -> None:
    problems = validate_operator(operator, origin)
    errors = [p for p in problems if p.severity is Severity.ERROR]
    switches = [p for p in errors if p.path.startswith("spec.components.") and p.path.endswith(".enabled")]
    if errors and (switches or not force):
        raise SettingsError(describe_problems(errors, origin))
    for problem in problems:
        warn(describe_problems([problem], origin))


def yaml_text(plain: Any) -> str:
    """Return plain data as YAML with sorted keys."""
    return go_yaml.dump(plain)


def manifest_text(objects: Iterable[Plain]) -> str:
    """Return objects as YAML documents. For equal objects, the result is identical."""
    return "---\n".join(go_yaml.dump(plain) for plain in objects)
