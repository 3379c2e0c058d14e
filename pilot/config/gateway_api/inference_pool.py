"""inference.networking.k8s.io InferencePool.

https://gateway-api-inference-extension.sigs.k8s.io/api-types/inferencepool/
"""

from __future__ import annotations

from pilot.config.base import Int32, Lenient


class Port(Lenient, frozen=True):
    number: Int32 = 0


class PoolSelector(Lenient, frozen=True):
    match_labels: dict[str, str] = {}


class EndpointPickerRef(Lenient, frozen=True):
    """The ext_proc server that picks a Pod for each request."""

    group: str = ""
    kind: str = "Service"
    name: str = ""
    port: Port | None = None
    failure_mode: str = "FailClose"


class InferencePool(Lenient, frozen=True):
    """Pods that serve a model. An endpoint picker picks one for each request."""

    selector: PoolSelector = PoolSelector()
    target_ports: tuple[Port, ...] = ()
    app_protocol: str = ""
    endpoint_picker_ref: EndpointPickerRef = EndpointPickerRef()
