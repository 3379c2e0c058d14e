"""The whole comparison with a reference: proxies, the certificate authority, and stricter rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pilot.config.catalogue import CATALOGUE
from pilot.kube.object_client import ObjectClient
from pilot.settings import Settings
from pilot.shadow.authority_continuity import Continuity, check_authority
from pilot.shadow.cluster_snapshot import ShadowMesh, read_snapshot
from pilot.shadow.known_differences import ShadowVerdict
from pilot.shadow.proxy_comparison import ProxyReport, compare_proxies
from pilot.shadow.reference_pages import ReferencePages
from pilot.shadow.strictness import Strictness, private_key_sets, refused_objects


class ShadowReport(NamedTuple):
    """The result of a comparison with a reference."""

    proxies: ProxyReport
    authority: Continuity
    findings: list[Strictness]

    def count(self, verdict: ShadowVerdict) -> int:
        """Return the number of causes with a verdict."""
        return sum(cause.verdict is verdict for cause in self.proxies.causes)

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
    return ShadowReport(proxies, authority, findings)
