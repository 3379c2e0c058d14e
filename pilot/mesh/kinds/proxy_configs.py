"""Every object of the kind ProxyConfig."""

from __future__ import annotations

from pilot.config.mesh.proxy_config_override import ProxyConfigOverride
from pilot.mesh.kinds.view import KindView

proxy_configs = KindView[ProxyConfigOverride]("ProxyConfig", lambda db: db.proxy_configs)
