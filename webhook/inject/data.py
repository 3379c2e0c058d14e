"""The data of injection templates. https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/#template"""

from __future__ import annotations

from typing import Any

from gotemplate.printing import to_text
from gotemplate.values import GoStruct, Int64
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from webhook.inject.api_object import ApiObject
from webhook.inject.message import TemplateMessage
from webhook.inject.request import InjectionRequest
from webhook.pod.schema import TYPES


class StructData(GoStruct):
    """A Go struct with the given fields."""

    def __init__(self, type_name: str, members: dict[str, Any]) -> None:
        self.type_name, self._members = type_name, members

    def member(self, name: str) -> Any:
        """Return the value of a field. Raise ActionError if there is no such field."""
        if name in self._members:
            return self._members[name]
        raise self.no_member(name)

    def printed(self, verb: str) -> str:
        """Return the field values in braces, as Go prints a struct."""
        return f"{{{' '.join(to_text(value, verb) for value in self._members.values())}}}"


def template_data(request: InjectionRequest, pod: dict[str, Any], image: str, init_image: str) -> GoStruct:
    """Return the data of a sidecar template for `pod`."""
    owner = request.owner
    mode = request.mesh.inbound_traffic_policy.mode if request.mesh.inbound_traffic_policy else "PASSTHROUGH"
    members = {
        "TypeMeta": StructData("v1.TypeMeta", {"Kind": owner.kind, "APIVersion": owner.api_version}),
        "DeploymentMeta": StructData("types.NamespacedName", {"Namespace": owner.namespace, "Name": owner.name}),
        "ObjectMeta": ApiObject(pod.get("metadata") or {}, TYPES["ObjectMeta"]),
        "Spec": ApiObject(pod.get("spec") or {}, TYPES["PodSpec"]),
        "ProxyConfig": TemplateMessage(request.proxy_config, ProxyConfig),
        "MeshConfig": TemplateMessage(request.mesh, MeshConfig),
        "Values": request.config.values,
        "Revision": request.revision,
        "NativeSidecars": request.native,
        "ProxyImage": image,
        "ProxyInitImage": init_image,
        "ProxyUID": Int64(request.uid),
        "ProxyGID": Int64(request.gid),
        "InboundTrafficPolicyMode": mode.lower(),
        "CompliancePolicy": request.compliance_policy,
    }
    return StructData("*inject.SidecarTemplateData", members)
