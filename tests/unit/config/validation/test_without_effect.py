"""Fields of the mesh config. Each either has an effect or is reported as having none."""

from __future__ import annotations

import pathlib
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

import pilot
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.validation.without_effect import WITHOUT_EFFECT
from pilot.ingest.mesh_config import decode_mesh_config
from testing.rows import Rows

ROOT = pathlib.Path(pilot.__file__).parent
# Fields that also exist in DestinationRules, where they take effect.
ELSEWHERE = {("OutlierDetection", "consecutive_errors")}


def structs(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from structs(argument)


def reachable(
    struct: type[msgspec.Struct], visited: set[type[msgspec.Struct]]
) -> Iterator[tuple[type[msgspec.Struct], str]]:
    """Yield the fields of a message and of its nested messages, except below fields without effect."""
    if struct in visited:
        return
    visited.add(struct)
    hints = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        yield struct, field.name
        if field.name not in WITHOUT_EFFECT.get(struct, {}):
            for inner in structs(hints[field.name]):
                yield from reachable(inner, visited)


FIELDS = list(reachable(MeshConfig, set()))
NAMES_READ = {
    name
    for path in ROOT.rglob("*.py")
    if not path.is_relative_to(ROOT / "config")
    for name in re.findall(r"(?<=[.\"])\w+", path.read_text())
}
"""Attribute names and quoted words in the code outside of pilot/config."""


def test_every_field_is_read_or_has_no_effect() -> None:
    with Rows() as rows:
        for struct, field in FIELDS:
            with rows.row(f"{struct.__name__}.{field}"):
                is_listed = field in WITHOUT_EFFECT.get(struct, {}) or (struct.__name__, field) in ELSEWHERE
                assert is_listed or field in NAMES_READ, "read the field or list it in WITHOUT_EFFECT"


def test_listed_fields_exist() -> None:
    for struct, fields in WITHOUT_EFFECT.items():
        assert fields.keys() <= {f.name for f in msgspec.structs.fields(struct)}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("ingressClass: other", "ingressClass"),
        ("defaultConfig: {concurrency: 3}", "defaultConfig.concurrency"),
        ("defaultConfig: {tracing: {zipkin: {address: 'z:1'}}}", "defaultConfig.tracing.zipkin"),
        (
            "defaultConfig: {connectionSettings: {listenerConnectionLimit: 3}}",
            "defaultConfig.connectionSettings.listenerConnectionLimit",
        ),
        (
            "extensionProviders: [{name: z, lightstep: {service: z.a.svc.cluster.local, port: 80}}]",
            "extensionProviders[3].lightstep",
        ),
    ],
)
def test_field_without_effect_is_reported(text: str, path: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(text)])
    assert config is not None
    assert [(p.code, p.path, str(p.severity)) for p in problems] == [("no-effect", path, "warning")]


def test_effective_fields_have_no_problems() -> None:
    assert decode_mesh_config([])[1] == []
    text = "{trustDomain: x.com, defaultConfig: {proxyHeaders: {server: {disabled: true}}}, ingressClass: istio, enableTracing: false}"
    assert decode_mesh_config([yaml.safe_load(text)])[1] == []
