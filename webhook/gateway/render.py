"""Renders the objects of a Gateway from an injection template.

The result is validated against a fixed list of kinds before it is applied. Therefore, no Gateway or ConfigMap can
create objects of other kinds, in other namespaces or with other names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gotemplate import TemplateError
from gotemplate.values import Int64, StringMap
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.ingest.files.documents import SyntaxFault, read_documents
from webhook.gateway.overlay import OverlayError, lay_over
from webhook.inject.annotations import IMAGE_TYPE
from webhook.inject.api_object import ApiObject
from webhook.inject.config import InjectorConfig
from webhook.inject.data import StructData
from webhook.inject.image import proxy_image
from webhook.inject.message import TemplateMessage
from webhook.pod.schema import TYPES

Plain = dict[str, Any]
NAME_LABEL, MANAGED = "gateway.networking.k8s.io/gateway-name", "gateway.istio.io/managed"
NETWORK, DATAPLANE_MODE = "topology.istio.io/network", "istio.io/dataplane-mode"
KINDS = {
    "Deployment": "apps/v1",
    "DaemonSet": "apps/v1",
    "Service": "v1",
    "ServiceAccount": "v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "PodDisruptionBudget": "policy/v1",
}
"""API versions of the kinds that a template may render, keyed by kind."""


class RenderError(ValueError):
    """A Gateway cannot be deployed. Retries fail until the Gateway or the configuration changes."""


class GatewayToRender(NamedTuple):
    """A Gateway and everything that its deployment depends on.

    `metadata` is the Gateway's metadata. Each port has a name, number, application protocol and transport protocol, and
    each address has a type and value. `kubernetes` is the cluster's version, such as 134. `managed` is the value of the
    label gateway.istio.io/managed.
    """

    metadata: Plain
    class_name: str
    template: str
    managed: str
    name: str
    account: str
    service_type: str
    ports: tuple[tuple[str, int, str, str], ...]
    addresses: tuple[tuple[str, str], ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    overlays: tuple[Mapping[str, str], ...]
    proxy_config: ProxyConfig
    mesh: MeshConfig
    cluster: str
    revision: str
    kubernetes: int
    uid: int
    gid: int
    compliance_policy: str = ""


def render_gateway(gateway: GatewayToRender, config: InjectorConfig) -> list[Plain]:
    """Render the objects of a Gateway. Raise RenderError if the Gateway cannot be deployed."""
    template = config.templates.get(gateway.template)
    if template is None:
        raise RenderError(f"no {gateway.template!r} template defined")
    try:
        text = template.execute(_data(gateway, config))
        documents = [document.plain for document in read_documents(text.encode(), "") if document.plain is not None]
        checked = [_check(gateway, document) for document in documents]
        _refuse_repeated(checked)
        overlaid = (lay_over(document, gateway.overlays) for document in checked)
        return [_managed(document, gateway) for document in overlaid if document is not None]
    except (TemplateError, SyntaxFault, OverlayError) as error:
        raise RenderError(str(error)) from error


def _data(gateway: GatewayToRender, config: InjectorConfig) -> StructData:
    metadata = gateway.metadata
    annotation = (metadata.get("annotations") or {}).get(IMAGE_TYPE)
    image = gateway.proxy_config.image.image_type if gateway.proxy_config.image is not None else ""
    ports = [
        StructData("v1.ServicePort", {"Name": name, "Port": port, "Protocol": transport, "AppProtocol": protocol})
        for name, port, protocol, transport in gateway.ports
    ]
    addresses = [
        StructData("v1.GatewaySpecAddress", {"Type": type_, "Value": value}) for type_, value in gateway.addresses
    ]
    members = {
        "Name": metadata["name"],
        "Namespace": metadata["namespace"],
        "UID": metadata.get("uid") or "",
        "Labels": StringMap(metadata.get("labels") or {}),
        "Annotations": StringMap(metadata.get("annotations") or {}),
        "ObjectMeta": ApiObject(metadata, TYPES["ObjectMeta"]),
        "Spec": StructData("v1.GatewaySpec", {"GatewayClassName": gateway.class_name, "Addresses": addresses}),
        "GatewayClass": gateway.class_name,
        "DeploymentName": gateway.name,
        "ServiceAccount": gateway.account,
        "Ports": ports,
        "ServiceType": gateway.service_type,
        "ClusterID": gateway.cluster,
        "KubeVersion": gateway.kubernetes,
        "Revision": gateway.revision,
        "NativeSidecars": True,
        "ProxyUID": Int64(gateway.uid),
        "ProxyGID": Int64(gateway.gid),
        "CompliancePolicy": gateway.compliance_policy,
        "InfrastructureLabels": StringMap(dict(gateway.labels)),
        "InfrastructureAnnotations": StringMap(dict(gateway.annotations)),
        "GatewayNameLabel": NAME_LABEL,
        "ControllerLabel": gateway.managed,
        "IsEastWestGateway": gateway.managed == "istio.io-eastwest-controller",
        "ProxyImage": proxy_image(config, annotation, image),
        "InboundTrafficPolicyMode": (
            gateway.mesh.inbound_traffic_policy.mode if gateway.mesh.inbound_traffic_policy else "PASSTHROUGH"
        ).lower(),
        "ProxyConfig": TemplateMessage(gateway.proxy_config, ProxyConfig),
        "MeshConfig": TemplateMessage(gateway.mesh, MeshConfig),
        "Values": config.values,
    }
    return StructData("gateway.TemplateInput", members)


def _check(gateway: GatewayToRender, document: Any) -> Plain:
    """Return a rendered object unchanged. Raise RenderError if templates are not allowed to render it."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(metadata, dict):
        raise RenderError("the output of the template is not an object")
    kind, namespace, name = document.get("kind"), metadata.get("namespace"), metadata.get("name")
    if not isinstance(kind, str) or KINDS.get(kind) != document.get("apiVersion"):
        raise RenderError(
            f"the template renders {document.get('apiVersion')} {kind}; only {', '.join(KINDS)} are deployed"
        )
    if namespace != gateway.metadata["namespace"]:
        raise RenderError(f"the template renders {kind} {name} in namespace {namespace!r}, which is not the Gateway's")
    if name != (gateway.account if kind == "ServiceAccount" else gateway.name):
        raise RenderError(f"the template renders {kind} {name!r}, which is not the name of the deployment")
    return document


def _refuse_repeated(documents: Iterable[Plain]) -> None:
    kinds = [document["kind"] for document in documents]
    if len(set(kinds)) < len(kinds):
        raise RenderError("the template renders two objects of the same kind")


def _managed(document: Plain, gateway: GatewayToRender) -> Plain:
    """Return an object with the labels that identify its Gateway. Overlays cannot remove these labels."""
    metadata = document["metadata"]
    labels = {**(metadata.get("labels") or {}), NAME_LABEL: gateway.metadata["name"], MANAGED: gateway.managed}
    return {**document, "metadata": {**metadata, "labels": labels}}
