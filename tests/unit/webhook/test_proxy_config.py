"""Precedence of proxy configuration, from the mesh to the annotation of the pod."""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any

import pytest
import yaml

from pilot.config.mesh.proxy_config import ProxyConfig, ProxyImage
from testing.kube.webhooks import config_texts
from testing.mesh.objects import make
from tests.unit.bootstrap.test_control_plane import running
from tests.unit.webhook.test_port import post_review
from webhook.inject.proxy_config import ProxyConfigObject, effective

MESH = ProxyConfig(concurrency=1, proxy_metadata={"A": "mesh", "M": "mesh"}, image=ProxyImage("debug"))
ROOT = ProxyConfigObject("root", "2025-01-01", concurrency=2, environment={"A": "root", "R": "root"})
HERE = ProxyConfigObject("a", "2025-01-02", concurrency=3, environment={"A": "here"}, image_type="distroless")
YOUNGER = ProxyConfigObject("a", "2025-01-03", concurrency=4)
OWN = ProxyConfigObject("a", "2025-01-04", {"app": "web"}, 5, {"A": "own"}, "default")
OTHER = ProxyConfigObject("a", "2025-01-01", {"app": "other"}, 6)
ROOT_SELECTS = ProxyConfigObject("root", "2025-01-01", {"app": "web"}, 7)
ANNOTATION = "concurrency: 8\nproxyMetadata: {A: annotation, P: annotation}"


@pytest.mark.parametrize(
    ("objects", "override", "concurrency", "variable", "image"),
    [
        ((), None, 1, "mesh", "debug"),
        ((ROOT,), None, 2, "root", "debug"),
        ((ROOT, HERE), None, 3, "here", "distroless"),
        ((YOUNGER, HERE), None, 3, "here", "distroless"),
        ((ROOT, HERE), ANNOTATION, 8, "annotation", "distroless"),
        ((ROOT, HERE, OWN), ANNOTATION, 5, "own", "default"),
        ((ROOT, OTHER, ROOT_SELECTS), None, 2, "root", "debug"),
        ((), "image: {imageType: distroless}", 1, "mesh", "distroless"),
    ],
)
def test_precedence(
    objects: tuple[ProxyConfigObject, ...], override: str | None, concurrency: int, variable: str, image: str
) -> None:
    merged = effective(MESH, reversed(objects), "root", "a", {"app": "web"}, override)
    assert (merged.concurrency, merged.proxy_metadata["A"], merged.image) == (concurrency, variable, ProxyImage(image))
    assert merged.proxy_metadata["M"] == "mesh"


def test_variables_of_all_levels_are_merged() -> None:
    merged = effective(MESH, (ROOT, HERE, OWN), "root", "a", {"app": "web"}, ANNOTATION)
    assert merged.proxy_metadata == {"A": "own", "M": "mesh", "R": "root", "P": "annotation"}


def test_headers_are_merged_field_by_field() -> None:
    lower = effective(MESH, (), "root", "a", {}, "proxyHeaders: {server: {value: x}, requestId: {disabled: true}}")
    merged = effective(lower, (), "root", "a", {}, "proxyHeaders: {server: {value: y}}")
    assert merged.proxy_headers is not None
    assert merged.proxy_headers.server is not None
    assert merged.proxy_headers.server.value == "y"
    assert merged.proxy_headers.request_id is not None


async def test_pods_are_injected_with_proxy_configs(tmp_path: pathlib.Path) -> None:
    """ProxyConfigs are read at injection and do not affect existing proxies."""
    folder, mesh = tmp_path / "inject", tmp_path / "mesh"
    folder.mkdir()
    mesh.mkdir()
    config, values = config_texts()
    (folder / "config").write_text(config)
    (folder / "values").write_text(values)
    objects = [
        make("ProxyConfig", name, spec, namespace) | {"apiVersion": "networking.istio.io/v1beta1"}
        for name, spec, namespace in (
            ("mesh", "{concurrency: 3, environmentVariables: {LEVEL: mesh}}", "istio-system"),
            ("here", "{environmentVariables: {LEVEL: here}, image: {imageType: debug}}", "shop"),
            ("far", "{environmentVariables: {LEVEL: far}}", "far"),
        )
    ]
    (mesh / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    async with running(mesh, injectionDir=str(folder)) as env:
        response = (await post_review(env))[1]["response"]
    patch: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    text = json.dumps(patch)
    assert '\\"LEVEL\\": \\"here\\"' in text or '"name": "LEVEL", "value": "here"' in text
    assert "LEVEL" in text
    assert "-debug" in text
    assert '\\"concurrency\\":3' in text
