"""Addresses of Services, as kube-proxy provides them: nftables rules from Services and EndpointSlices."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pilot.kube.api_errors import KubeError
from pilot.kube.list_watch import NamespacedName
from tests.cluster.box.addresses import BALANCERS, OUTSIDE, SERVICES
from tests.cluster.box.objects import STRATEGIC, Api, Collection
from tests.cluster.box.pod_network import load_rules

Plain = dict[str, Any]
SERVICE_NAME = "kubernetes.io/service-name"
QUIET_SECONDS = 0.05


class Services:
    """Keeps the node's rules up to date. `services` and `slices` are also what DNS answers from."""

    services: Collection
    slices: Collection

    def __init__(self, api: Api) -> None:
        self._api, self._changed, self._rules = api, asyncio.Event(), ""
        self._balancers = ipaddress.ip_network(BALANCERS).hosts()

    async def run(self) -> None:
        """Watch until cancelled."""
        self.services = await self._api.watch("/api/v1/services", self._on_change)
        self.slices = await self._api.watch("/apis/discovery.k8s.io/v1/endpointslices", self._on_change)
        while True:
            await self._assign_balancers()
            rules = build_rules(self.services, self.slices.values())
            if rules != self._rules:
                await asyncio.to_thread(load_rules, rules)
                self._rules = rules
            await self._changed.wait()
            await asyncio.sleep(QUIET_SECONDS)
            self._changed.clear()

    async def _assign_balancers(self) -> None:
        """Give an address outside of the cluster to each Service of type LoadBalancer."""
        for name, service in list(self.services.items()):
            if service["spec"].get("type") == "LoadBalancer" and not service.get("status", {}).get("loadBalancer"):
                status = {"loadBalancer": {"ingress": [{"ip": str(next(self._balancers))}]}}
                with contextlib.suppress(KubeError):  # it has changed, or is gone
                    path = f"/api/v1/namespaces/{name.namespace}/services/{name.name}/status"
                    await self._api.request("PATCH", path, {"status": status}, STRATEGIC)

    def _on_change(self, _name: NamespacedName, _plain: Plain | None) -> None:
        self._changed.set()

    def endpoints(self, key: NamespacedName) -> Iterator[tuple[str, bool, str]]:
        """Yield address, readiness and host name of a Service's endpoints."""
        for piece in self.slices.values():
            if service_of(piece) == key:
                for endpoint in piece.get("endpoints") or ():
                    ready = endpoint.get("conditions", {}).get("ready", True)
                    yield endpoint["addresses"][0], ready, endpoint.get("hostname") or ""


def service_of(piece: Plain) -> NamespacedName:
    """Return the Service of an EndpointSlice."""
    metadata = piece["metadata"]
    return NamespacedName(metadata["namespace"], metadata.get("labels", {}).get(SERVICE_NAME, ""))


def build_rules(services: Mapping[NamespacedName, Plain], slices: Iterable[Plain]) -> str:
    """Return a script for nft that replaces all rules."""
    backends: dict[tuple[NamespacedName, str], list[str]] = {}
    pairs: set[str] = set()
    for piece in slices:
        if piece.get("addressType") != "IPv4":
            continue
        addresses = [
            endpoint["addresses"][0]
            for endpoint in piece.get("endpoints") or ()
            if endpoint.get("conditions", {}).get("ready", True) is not False
        ]
        for port in piece.get("ports") or ():
            backend = service_of(piece), port.get("name") or ""
            backends.setdefault(backend, []).extend(f"{address} . {port['port']}" for address in addresses)
            pairs.update(f"{address} . {address}" for address in addresses)
    translated, refused = [], []
    for key, service in services.items():
        spec = service["spec"]
        addresses = _addresses(service)
        for port in spec.get("ports") or ():
            protocol = port.get("protocol", "TCP").lower()
            targets = sorted(set(backends.get((key, port.get("name") or ""), ())))
            for address in addresses:
                match = f"ip daddr {address} {protocol} dport {port['port']}"
                if targets:
                    choices = ", ".join(f"{i} : {target}" for i, target in enumerate(targets))
                    translated.append(f"{match} dnat to numgen random mod {len(targets)} map {{ {choices} }}")
                else:
                    refused.append(f"{match} reject{' with tcp reset' if protocol == 'tcp' else ''}")
    to_services = "\n".join(translated)
    rejected = "\n".join(refused)
    elements = f"elements = {{ {', '.join(sorted(pairs))} }}" if pairs else ""
    return f"""\
table ip box
delete table ip box
table ip box {{
set itself {{ type ipv4_addr . ipv4_addr; {elements}; }}
chain translate {{
{to_services}
}}
chain arriving {{ type nat hook prerouting priority dstnat; jump translate; }}
chain leaving {{ type nat hook output priority -100; jump translate; }}
chain returning {{ type nat hook postrouting priority srcnat; ip saddr . ip daddr @itself masquerade; oifname "{OUTSIDE}" masquerade; }}
chain refuse {{
{rejected}
ip daddr {{ {SERVICES}, {BALANCERS} }} meta l4proto tcp reject with tcp reset
}}
chain refuse_forwarded {{ type filter hook forward priority 0; jump refuse; }}
chain refuse_own {{ type filter hook output priority 0; jump refuse; }}
}}
"""


def _addresses(service: Plain) -> list[str]:
    spec = service["spec"]
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    cluster = [address for address in spec.get("clusterIPs") or () if address and address != "None"]
    return [address for address in (*cluster, *(i.get("ip", "") for i in ingress)) if "." in address]
