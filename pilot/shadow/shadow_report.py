"""The whole comparison with a reference: proxies, injection, the certificate authority, and stricter rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pilot.config.catalogue import CATALOGUE
from pilot.kube.object_client import ObjectClient
from pilot.settings import Settings
from pilot.shadow.authority_continuity import Continuity, check_authority
from pilot.shadow.cluster_snapshot import ShadowMesh, read_snapshot
from pilot.shadow.injection_comparison import InjectionReport, compare_injection
from pilot.shadow.known_differences import ShadowVerdict
from pilot.shadow.proxy_comparison import ProxyReport, compare_proxies
from pilot.shadow.reference_pages import ReferencePages
from pilot.shadow.strictness import Strictness, private_key_sets, refused_objects


class ShadowReport(NamedTuple):
    """The result of a comparison with a reference."""

    proxies: ProxyReport
    authority: Continuity
    findings: list[Strictness]
    injection: InjectionReport

    def count(self, verdict: ShadowVerdict) -> int:
        """Return the number of causes, and of fields of injected Pods, with a verdict."""
        fields = sum(field.verdict == verdict.value for field in self.injection.differences)
        return fields + sum(cause.verdict is verdict for cause in self.proxies.causes)

    def show(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        proxies = self.proxies
        return {
            "proxies": proxies.proxies,
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
            "stricter": [finding._asdict() for finding in self.findings],
        }


async def compare_with_reference(
    client: ObjectClient, replicas: Sequence[ReferencePages], settings: Settings
) -> ShadowReport:
    """Compare this control plane with a reference. Only GET requests are sent.

    Raise KubeError or ReferenceFault if a server is unreachable.
    """
    snapshot = await read_snapshot(client, settings, CATALOGUE)
    mesh = ShadowMesh(snapshot, settings)
    proxies = await compare_proxies(replicas, mesh)
    authority = await check_authority(client, settings.mesh.registry.namespace)
    findings = [*refused_objects(mesh.problems), *private_key_sets(snapshot.objects)]
    pods = (plain for plain in snapshot.objects if plain["kind"] == "Pod")
    injection = await compare_injection(
        client, mesh, pods, settings.mesh.registry.namespace, settings.ingest.revision or ""
    )
    return ShadowReport(proxies, authority, findings, injection)
