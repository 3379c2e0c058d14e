"""Every object of the kind ProxyConfig."""

from __future__ import annotations

from pilot.model.config.proxy_config_override import ProxyConfigOverride
from pilot.model.views.kinds.view import KindView

proxy_configs = KindView[ProxyConfigOverride]("ProxyConfig", lambda db: db.proxy_configs)
