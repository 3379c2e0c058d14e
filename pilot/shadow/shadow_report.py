"""The whole comparison with a reference: proxies, injection, validation, the certificate authority, and stricter
rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pilot.config.catalogue import CATALOGUE
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind
from pilot.settings import Settings
from pilot.shadow.authority_continuity import ROOT_CONFIG_MAP, Continuity, check_authority, published_root
from pilot.shadow.cluster_snapshot import ShadowMesh, read_snapshot
from pilot.shadow.injection_comparison import InjectionReport, compare_injection
from pilot.shadow.known_differences import ShadowVerdict
from pilot.shadow.proxy_comparison import ProxyReport, compare_proxies, compare_workloads
from pilot.shadow.reference_pages import ReferenceFault, ReferencePages
from pilot.shadow.reference_server import ReferenceServer
from pilot.shadow.strictness import Strictness, private_key_sets, private_modules, refused_objects
from pilot.shadow.validation_comparison import ValidationReport, compare_validation
from pilot.shadow.workload_proxies import workload_proxies

Plain = dict[str, Any]
_ACCOUNT = VersionedKind("v1", "ServiceAccount")
_TOKEN = {"audiences": ["istio-ca"], "expirationSeconds": 600}


class ReferencePort(NamedTuple):
    """The address of a TLS port of a reference (xDS or webhook), the name in its certificate, and its namespace."""

    address: str
    server_name: str
    namespace: str


class ShadowReport(NamedTuple):
    """The result of a comparison with a reference."""

    proxies: ProxyReport
    authority: Continuity
    findings: list[Strictness]
    injection: InjectionReport
    validation: ValidationReport

    def count(self, verdict: ShadowVerdict) -> int:
        """Return the number of causes, and of fields of injected Pods, with a verdict."""
        fields = sum(field.verdict == verdict.value for field in self.injection.differences)
        return fields + sum(cause.verdict is verdict for cause in self.proxies.causes)

    def show(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        proxies = self.proxies
        return {
            "proxies": proxies.proxies,
            "pods": proxies.pods,
            "resources": proxies.resources,
            "equal": proxies.equal,
            "seconds": round(proxies.seconds, 3),
            "disconnected": proxies.gone,
            "rejected": proxies.rejected,
            "unread": proxies.unread,
            "inferred": proxies.inferred,
            "causes": [cause.show() for cause in proxies.causes],
            "authority": self.authority._asdict(),
            "injection": {
                **self.injection._asdict(),
                "differences": [field._asdict() for field in self.injection.differences],
            },
            "validation": {
                **self.validation._asdict(),
                "differences": [difference._asdict() for difference in self.validation.differences],
            },
            "stricter": [finding._asdict() for finding in self.findings],
        }


async def compare_with_reference(
    client: ObjectClient,
    reference: Sequence[ReferencePages] | ReferencePort,
    settings: Settings,
    webhook: ReferencePort | None = None,
) -> ShadowReport:
    """Compare this control plane with a reference: with the debug pages of its replicas, or with its xDS port.

    Only GET requests are sent, besides reviews of objects for a webhook, and requests for tokens for an xDS port. Raise
    KubeError or ReferenceFault if a server is unreachable.
    """
    snapshot = await read_snapshot(client, settings, CATALOGUE)
    mesh = ShadowMesh(snapshot, settings)
    proxies = await _compare_proxies(client, reference, snapshot.objects, mesh)
    authority = await check_authority(client, settings.mesh.registry.namespace)
    findings = [
        *refused_objects(mesh.problems),
        *private_key_sets(snapshot.objects),
        *private_modules(snapshot.objects),
    ]
    pods = (plain for plain in snapshot.objects if plain["kind"] == "Pod")
    injection = await compare_injection(
        client, mesh, pods, settings.mesh.registry.namespace, settings.ingest.revision or ""
    )
    validation = await _compare_validation(client, webhook, snapshot.objects, mesh)
    return ShadowReport(proxies, authority, findings, injection, validation)


async def _compare_validation(
    client: ObjectClient, webhook: ReferencePort | None, objects: Iterable[Plain], mesh: ShadowMesh
) -> ValidationReport:
    if webhook is None:
        return ValidationReport(0, [], "the address of the reference's webhook is unknown")
    root = await published_root(client, webhook.namespace)
    return await compare_validation(ReferenceServer(webhook.address, root, webhook.server_name), objects, mesh.problems)


async def _compare_proxies(
    client: ObjectClient,
    reference: Sequence[ReferencePages] | ReferencePort,
    objects: Iterable[Plain],
    mesh: ShadowMesh,
) -> ProxyReport:
    if not isinstance(reference, ReferencePort):
        return await compare_proxies(reference, mesh)
    root = await published_root(client, reference.namespace)
    if not root:
        raise ReferenceFault(f"the ConfigMap {reference.namespace}/{ROOT_CONFIG_MAP} has no root certificate")

    async def request_token(namespace: str, account: str) -> str:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": _TOKEN}
        answer = await client.post(ResourceKey(_ACCOUNT, namespace, account), body, "token")
        return str(answer["status"]["token"])

    server = ReferenceServer(reference.address, root, reference.server_name)
    pods = workload_proxies(plain for plain in objects if plain["kind"] == "Pod")
    return await compare_workloads(server, request_token, pods, mesh)
