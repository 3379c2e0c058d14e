"""Checks that the targets and image pull Secrets of WasmPlugins and TrafficExtensions exist."""

from __future__ import annotations

from typing import Any

from pilot.config.kinds.istio import TRAFFIC_EXTENSION, WASM_PLUGIN
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.derive import derived
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.policy import check_attachment, check_selected, check_targets
from pilot.mesh.lowering.wasm_plugins import FROM_WASM_PLUGIN
from pilot.mesh.security.pull_secrets import pull_secret
from pilot.mesh.tables.database import Mesh


@derived
def _plugin_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return WASM_PLUGIN.all_keys(db)


@derived
def wasm_plugin_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a WasmPlugin and other objects."""
    plugin = WASM_PLUGIN.get(db, key)
    if plugin is None:
        return ()
    return attribute(
        plugin,
        below("spec", (*check_attachment(db, plugin), *_check_secret(db, plugin, plugin.spec.image_pull_secret))),
    )


@derived
def _extension_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return tuple(key for key in TRAFFIC_EXTENSION.all_keys(db) if not key.name.endswith(FROM_WASM_PLUGIN))


@derived
def traffic_extension_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a TrafficExtension and other objects."""
    extension = TRAFFIC_EXTENSION.get(db, key)
    if extension is None:
        return ()
    secret = extension.spec.wasm.image_pull_secret if extension.spec.wasm is not None else ""
    attached = (
        *check_selected(db, extension),
        *check_targets(db, extension.namespace, None, extension.spec.target_refs),
    )
    return attribute(extension, below("spec", (*attached, *below("wasm", _check_secret(db, extension, secret)))))


def _check_secret(db: Mesh, o: Object[Any], name: str) -> Problems:
    """Yield a problem if the image pull Secret does not exist in the local cluster."""
    if name and not pull_secret(db, o.namespace, name, db.settings.registry.cluster_id):
        message = (
            f"namespace {o.namespace} has no Secret {name} of type kubernetes.io/dockerconfigjson, "
            "so the module cannot be fetched"
        )
        yield warning("pull-secret-not-found", "imagePullSecret", message)


WASM_PLUGINS = Check("WasmPlugin", _plugin_keys, wasm_plugin_problems)
TRAFFIC_EXTENSIONS = Check("TrafficExtension", _extension_keys, traffic_extension_problems)
