"""The schemas of charts' values: they allow what charts and IstioOperators say, and nothing that has no effect."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from deploy.chart.chart import installation_folder, read_chart
from deploy.generated import CHARTS
from deploy.operator.components import chart_values, enabled_components
from deploy.operator.errors import SettingsError
from deploy.operator.inputs import profile_names, user_settings
from deploy.operator.manifest import render_installation, resolve_operator
from testing.mesh.json_schema import invalid_paths


@functools.cache
def schema(chart: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (installation_folder() / "charts" / chart / "values.schema.json").read_text("utf-8")
    )
    return found


def wrong(chart: str, values: Any) -> list[str]:
    """Where values are wrong, with those of the chart below them as Helm has them."""
    return invalid_paths({**read_chart(installation_folder() / "charts" / chart).values, **values}, schema(chart))


@pytest.mark.parametrize("chart", CHARTS)
def test_what_a_chart_has_as_defaults_may_be_said(chart: str) -> None:
    assert wrong(chart, {}) == []
    values = read_chart(installation_folder() / "charts" / chart).values
    assert wrong(chart, values.get("chartDefaults") or values) == []


@pytest.mark.parametrize("profile", profile_names())
def test_what_an_istiooperator_says_to_a_chart_may_be_said(profile: str) -> None:
    more = [
        "values.pilot.env.A=b",
        "meshConfig.accessLogFile=/dev/stdout",
        "values.global.proxy.resources.requests.cpu=10m",
    ]
    operator = resolve_operator(user_settings((), [f"profile={profile}", *more]), print, None, False)
    for chosen in enabled_components(operator):
        assert wrong(chosen.component.chart, chart_values(operator, chosen)) == []


@pytest.mark.parametrize(
    ("chart", "values", "path"),
    [
        ("istiod", {"autoscaleMinn": 2}, "$.autoscaleMinn"),
        ("istiod", {"autoscaleEnabled": "true"}, "$.autoscaleEnabled"),
        ("istiod", {"pilot": {"replicaCount": [1]}}, "$.pilot.replicaCount"),
        ("istiod", {"tolerations": [{"key": "a", "operatr": "Exists"}]}, "$.tolerations[0].operatr"),
        ("istiod", {"global": {"proxy": {"privileged": "no"}}}, "$.global.proxy.privileged"),
        ("cni", {"repair": {"enabled": 1}}, "$.repair.enabled"),
        (
            "ingress",
            {"gateways": {"istio-ingressgateway": {"autoscaleMax": {}}}},
            "$.gateways.istio-ingressgateway.autoscaleMax",
        ),
        ("gateway", {"service": []}, "$.service"),
        ("gateway", {"servce": {}}, "$.servce"),
        ("ztunnel", {"tolerations": {}}, "$.tolerations"),
    ],
)
def test_what_has_no_effect_or_another_type_is_refused_with_its_path(chart: str, values: Any, path: str) -> None:
    assert wrong(chart, values) == [path]


def test_what_other_charts_say_to_all_is_no_mistake() -> None:
    assert wrong("istiod", {"global": {"ourCompany": {"team": "a"}}}) == []


def test_the_same_mistakes_are_refused_of_an_istiooperator_with_their_paths() -> None:
    for assignment, said in (
        (
            "values.pilot.autoscaleMinn=2",
            "spec.values.pilot.autoscaleMinn: unknown field autoscaleMinn; did you mean autoscaleMin?",
        ),
        (
            "values.global.proxy.privileged=no",
            'spec.values.global.proxy.privileged: expected a boolean (true or false), got "no"',
        ),
    ):
        with pytest.raises(SettingsError) as caught:
            render_installation(user_settings((), [assignment]), print)
        assert str(caught.value) == said
