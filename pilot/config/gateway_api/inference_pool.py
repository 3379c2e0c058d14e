"""inference.networking.k8s.io InferencePool. https://gateway-api-inference-extension.sigs.k8s.io/api-types/inferencepool/"""

from __future__ import annotations

from pilot.config.base import Int32, Lenient


class Port(Lenient, frozen=True):
    number: Int32 = 0


class PoolSelector(Lenient, frozen=True):
    match_labels: dict[str, str] = {}


class EndpointPickerRef(Lenient, frozen=True):
    """Who chooses the pod for each request: an ext_proc server."""

    group: str = ""
    kind: str = "Service"
    name: str = ""
    port: Port | None = None
    failure_mode: str = "FailClose"


class InferencePool(Lenient, frozen=True):
    """Pods that run a model, of which an endpoint picker chooses one for each request."""

    selector: PoolSelector = PoolSelector()
    target_ports: tuple[Port, ...] = ()
    app_protocol: str = ""
    endpoint_picker_ref: EndpointPickerRef = EndpointPickerRef()
