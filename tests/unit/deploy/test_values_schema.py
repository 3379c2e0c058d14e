"""Schemas of chart values: they allow values of charts and IstioOperators, and nothing without effect."""

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
    values_schema: dict[str, Any] = json.loads(
        (installation_folder() / "charts" / chart / "values.schema.json").read_text("utf-8")
    )
    return values_schema


def invalid_values(chart: str, values: Any) -> list[str]:
    """Return the paths of invalid values, merged over the chart's values as in Helm."""
    return invalid_paths({**read_chart(installation_folder() / "charts" / chart).values, **values}, schema(chart))


@pytest.mark.parametrize("chart", CHARTS)
def test_defaults_are_valid(chart: str) -> None:
    assert invalid_values(chart, {}) == []
    values = read_chart(installation_folder() / "charts" / chart).values
    assert invalid_values(chart, values.get("chartDefaults") or values) == []


@pytest.mark.parametrize("profile", profile_names())
def test_values_of_an_istio_operator_are_valid(profile: str) -> None:
    more = [
        "values.pilot.env.A=b",
        "meshConfig.accessLogFile=/dev/stdout",
        "values.global.proxy.resources.requests.cpu=10m",
    ]
    operator = resolve_operator(user_settings((), [f"profile={profile}", *more]).plain, print, None, False)
    for component in enabled_components(operator):
        assert invalid_values(component.component.chart, chart_values(operator, component)) == []


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
def test_invalid_values_have_their_path(chart: str, values: Any, path: str) -> None:
    assert invalid_values(chart, values) == [path]


def test_unknown_global_values_are_allowed() -> None:
    assert invalid_values("istiod", {"global": {"ourCompany": {"team": "a"}}}) == []


def test_invalid_values_of_an_istio_operator() -> None:
    for assignment, message in (
        (
            "values.pilot.autoscaleMinn=2",
            "spec.values.pilot.autoscaleMinn: unknown field autoscaleMinn; did you mean autoscaleMin?",
        ),
        (
            "values.global.proxy.privileged=no",
            'spec.values.global.proxy.privileged: expected a boolean (true or false), got "no"',
        ),
    ):
        with pytest.raises(SettingsError) as raised:
            render_installation(user_settings((), [assignment]).plain, print)
        assert str(raised.value) == message
