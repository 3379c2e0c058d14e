"""Every WasmPlugin."""

from __future__ import annotations

from pilot.model.config.wasm_plugin import WasmPlugin
from pilot.model.views.kinds.view import KindView

wasm_plugins = KindView[WasmPlugin]("WasmPlugin", lambda db: db.wasm_plugins)
