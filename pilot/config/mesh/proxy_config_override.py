"""networking.istio.io ProxyConfig. https://istio.io/latest/docs/reference/config/networking/proxy-config/"""

from __future__ import annotations

from pilot.config.base import Int32, Strict
from pilot.config.mesh.proxy_config import ProxyImage
from pilot.config.selector import WorkloadSelector


class ProxyConfigOverride(Strict, frozen=True):
    """The spec of a ProxyConfig object, which overrides the proxy config of the Pods in a namespace or of those that it
    selects.
    """

    selector: WorkloadSelector | None = None
    concurrency: Int32 | None = None
    environment_variables: dict[str, str] = {}
    image: ProxyImage | None = None
