"""TrafficExtensions that are converted from WasmPlugins."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.extensions.traffic_extension import ExecutionPhase, TrafficExtension, WasmConfig
from pilot.config.extensions.wasm_plugin import PluginPhase, WasmPlugin
from pilot.config.kinds.istio import TRAFFIC_EXTENSION, WASM_PLUGIN
from pilot.config.object import Object, ObjectKey
from pilot.derive import Gather, derived
from pilot.mesh.tables.database import Mesh

FROM_WASM_PLUGIN = "~istio-translated-wasmplugin"
"""Name suffix of TrafficExtensions that are converted from WasmPlugins. It is invalid in names of Kubernetes objects.
"""
_PHASES: dict[PluginPhase, ExecutionPhase] = {
    "UNSPECIFIED_PHASE": "UNSPECIFIED",
    "AUTHN": "AUTHN",
    "AUTHZ": "AUTHZ",
    "STATS": "STATS",
}
_MODULE = tuple(WasmConfig.__struct_fields__)


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return WASM_PLUGIN.all_keys(db)


@derived
def _extension_of(db: Mesh, key: ObjectKey) -> Object[TrafficExtension] | None:
    row = WASM_PLUGIN.get(db, key)
    if row is None:
        return None
    return Object(
        TRAFFIC_EXTENSION.id,
        row.namespace,
        row.name + FROM_WASM_PLUGIN,
        extension_of(row.spec),
        row.labels,
        row.annotations,
        row.created,
    )


_extensions: Gather[ObjectKey, [], Object[TrafficExtension]] = Gather(
    "extensions_of_wasm_plugins", _keys, _extension_of
)


@derived
def extensions_of_wasm_plugins(db: Mesh) -> Mapping[ObjectKey, Object[TrafficExtension]]:
    """Return the TrafficExtensions that WasmPlugins are converted to."""
    return {row.key: row for row in _extensions(db).values()}


def extension_of(plugin: WasmPlugin) -> TrafficExtension:
    """Return the TrafficExtension that a WasmPlugin is converted to."""
    targets = plugin.target_refs or ((plugin.target_ref,) if plugin.target_ref is not None else ())
    module = WasmConfig(**{name: getattr(plugin, name) for name in _MODULE})
    return TrafficExtension(plugin.selector, targets, _PHASES[plugin.phase], plugin.priority, plugin.match, module)
