"""Extensions of users: what they are for has to be there, and so has the Secret that their images are pulled by."""

from __future__ import annotations

from typing import Any

from pilot.config.kinds.istio import TRAFFIC_EXTENSION, WASM_PLUGIN
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.derive import derived
from pilot.mesh.analysis.check import Check, told
from pilot.mesh.analysis.policy import check_attachment, check_selected, check_targets
from pilot.mesh.lowering.wasm_plugins import FROM_WASM_PLUGIN
from pilot.mesh.security.pull_secrets import pull_secret
from pilot.mesh.tables.database import Mesh


@derived
def _plugin_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return WASM_PLUGIN.all_keys(db)


@derived
def wasm_plugin_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Returns the problems of a WasmPlugin with other objects."""
    found = WASM_PLUGIN.get(db, key)
    if found is None:
        return ()
    return told(
        found, below("spec", (*check_attachment(db, found), *_check_secret(db, found, found.spec.image_pull_secret)))
    )


@derived
def _extension_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return tuple(key for key in TRAFFIC_EXTENSION.all_keys(db) if not key.name.endswith(FROM_WASM_PLUGIN))


@derived
def traffic_extension_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Returns the problems of a TrafficExtension with other objects."""
    found = TRAFFIC_EXTENSION.get(db, key)
    if found is None:
        return ()
    named = found.spec.wasm.image_pull_secret if found.spec.wasm is not None else ""
    attached = (*check_selected(db, found), *check_targets(db, found.namespace, None, found.spec.target_refs))
    return told(found, below("spec", (*attached, *below("wasm", _check_secret(db, found, named)))))


def _check_secret(db: Mesh, o: Object[Any], named: str) -> Problems:
    """Yields a problem where the own cluster has no such Secret; what is pulled by it fails as the extension says."""
    if named and not pull_secret(db, o.namespace, named, db.settings.registry.cluster_id):
        message = f"namespace {o.namespace} has no Secret {named} of type kubernetes.io/dockerconfigjson: the module is not fetched"
        yield warning("pull-secret-not-found", "imagePullSecret", message)


WASM_PLUGINS = Check("WasmPlugin", _plugin_keys, wasm_plugin_problems)
TRAFFIC_EXTENSIONS = Check("TrafficExtension", _extension_keys, traffic_extension_problems)
