"""The injector's configuration, and the state of the control plane that injection depends on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.lib.logging.log import scope
from webhook.inject.config import ConfigError, InjectorConfig, decode_config
from webhook.inject.proxy_config import ProxyConfigObject
from webhook.inject.request import PROXY_ID

Labels = Mapping[str, str]
_log = scope("webhook")


async def _no_proxy_configs(namespace: str, labels: Labels) -> tuple[ProxyConfigObject, ...]:
    return ()


class InjectionContext(NamedTuple):
    """The control plane's state that injection depends on.

    `native` takes a Pod's cluster and node, and returns whether the proxy runs as a native sidecar. The node is "" if
    the Pod is not scheduled yet. `proxy_configs` takes a Pod's namespace and labels, and returns the ProxyConfig
    objects that may apply to the Pod. `proxy_ids` takes a namespace, and returns the proxy's user and group ID. If
    `resets_users` is set, a user that the platform has set in all containers is ignored.
    """

    mesh: Callable[[], MeshConfig]
    native: Callable[[str, str], bool] = lambda cluster, node: False
    proxy_configs: Callable[[str, Labels], Awaitable[tuple[ProxyConfigObject, ...]]] = _no_proxy_configs
    proxy_ids: Callable[[str], tuple[int, int]] = lambda namespace: (PROXY_ID, PROXY_ID)
    resets_users: bool = False
    revision: str = ""
    compliance_policy: str = ""


class Injector:
    """The current configuration of the injector.

    `config` is None until a configuration is loaded, and `texts` are the values of the ConfigMap keys from which it was
    decoded. The callbacks in `on_load` run after each change.
    """

    def __init__(self, context: InjectionContext) -> None:
        self.context = context
        self._loading = asyncio.Lock()
        self.config: InjectorConfig | None = None
        self.texts = ("", "")
        self.on_load: list[Callable[[], None]] = []

    def load(self, config: str, values: str) -> bool:
        """Load a configuration from the values of its ConfigMap keys. If it is invalid, keep the previous one and
        return False."""
        try:
            self.config = decode_config(config, values)
        except ConfigError as error:
            _log.error("invalid injector configuration, keeping the previous one: %s", error)
            return False
        self.texts = (config, values)
        _log.info("loaded the injector configuration with templates %s", ", ".join(self.config.templates))
        return True

    async def load_in_thread(self, config: str, values: str) -> None:
        """Call `load` in a thread, because the compilation of templates takes tens of milliseconds.

        Calls take effect in order.
        """
        async with self._loading:
            if await asyncio.to_thread(self.load, config, values):
                for callback in self.on_load:
                    callback()
