"""Manifests of workloads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def echo(
    namespace: str,
    name: str,
    replicas: int = 1,
    environ: Mapping[str, str] = {},
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
) -> str:
    """Return a Deployment of the image `echo`, its Service and its service account."""
    metadata = {"name": name, "namespace": namespace}
    container: dict[str, Any] = {
        "name": "echo",
        "image": "echo",
        "ports": [{"containerPort": 8080}],
        "env": [{"name": key, "value": value} for key, value in environ.items()],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    template = {
        "metadata": {"labels": {"app": name, **labels}, "annotations": annotations},
        "spec": {"serviceAccountName": name, "containers": [container]},
    }
    selector = {"app": name}
    deployment = {"replicas": replicas, "selector": {"matchLabels": selector}, "template": template}
    service = {"selector": selector, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    return objects(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    )


def namespace(name: str, labels: Mapping[str, str] = {}) -> str:
    """Return a namespace."""
    return objects({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


def objects(*plain: Mapping[str, Any]) -> str:
    """Return a list of objects as a manifest."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": plain})
