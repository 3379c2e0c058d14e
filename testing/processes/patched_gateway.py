"""A gateway patched by EnvoyFilters, with one port for each case of a table."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import yaml

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.clients.mesh_client import MeshClient, MeshRequest
from testing.mesh.objects import Plain, make
from testing.processes.agent_stub import Root
from testing.processes.guarded_workload import Echo
from testing.processes.process import ControlPlane, Envoy, eventually, free_port
from testing.servers.backends import Backend

PROTOCOLS = {"http": "HTTP", "tcp": "TCP", "tls": "TLS"}


class GatewayPort(NamedTuple):
    """One port of the gateway: Envoy's configuration of it, and its behaviour."""

    edge: PatchedGateway
    port: int
    spare: int

    # -- configuration -----------------------------------------------------------------------------------------------------

    @property
    def listener(self) -> Plain:
        """The listener of the port in Envoy, or {}."""
        return self.edge.listeners().get(self.port, {})

    @property
    def chains(self) -> list[Plain]:
        filter_chains: list[Plain] = self.listener.get("filter_chains", [])
        return filter_chains

    @property
    def network(self) -> list[Plain]:
        """The network filters of the only chain."""
        (chain,) = self.chains
        filters: list[Plain] = chain["filters"]
        return filters

    @property
    def http(self) -> list[Plain]:
        http_filters: list[Plain] = self.network[-1]["typed_config"]["http_filters"]
        return http_filters

    @property
    def routes(self) -> Plain:
        return self.edge.dump(
            "RoutesConfigDump", "dynamic_route_configs", "route_config", f"http.{self.port}.127.0.0.1"
        )

    @property
    def host(self) -> Plain:
        """The first virtual host."""
        virtual_host: Plain = self.routes["virtual_hosts"][0]
        return virtual_host

    def cluster(self, name: str) -> Plain:
        return self.edge.dump("ClustersConfigDump", "dynamic_active_clusters", "cluster", name)

    # -- behaviour ---------------------------------------------------------------------------------------------------------

    def status(self, path: str = "/", host: str = "a.test", **headers: str) -> int:
        return self.edge.client.status(
            self.port,
            MeshRequest(
                identity="", path=path, host=host, headers={k.replace("_", "-"): v for k, v in headers.items()}
            ),
        )

    def answer(self, path: str = "/") -> str:
        return self.edge.client.answer(self.port, MeshRequest(identity="", path=path, host="a.test")).lower()

    def connects(self, source: str = "127.0.0.1") -> bool:
        return self.edge.client.connects(self.port, MeshRequest(identity="", tcp=True, source=source))

    def greeting(self, source: str = "127.0.0.1") -> str:
        """Return the bytes that the server sends to a new connection."""
        return self.edge.client.answer(self.port, MeshRequest(identity="", source=source))


class Case(NamedTuple):
    """An EnvoyFilter: its name, the protocol of its port, its patches, and checks of Envoy's configuration and
    behaviour.

    In patches, `PORT` and `SPARE` stand for the port and for a free one.
    """

    name: str
    protocol: Literal["http", "tcp", "tls"]
    patches: tuple[str, ...]
    is_applied: Callable[[GatewayPort], bool]
    takes_effect: Callable[[GatewayPort], bool]


class PatchedGateway:
    """A control plane with all cases at once, and a stock Envoy as the gateway."""

    def __init__(self, work: pathlib.Path, cases: Sequence[Case]) -> None:
        folder = work / "config"
        folder.mkdir()
        self.usual, self.beta, self.echo = Backend("usual"), Backend("beta"), Echo()
        free = iter(_distinct_ports(2 * len(cases)))
        self._cases = cases
        self.at: Mapping[str, GatewayPort] = {case.name: GatewayPort(self, next(free), next(free)) for case in cases}
        self.client = MeshClient(Root(), work)
        (folder / "base.yaml").write_text(yaml.safe_dump_all([*self._base(), *(self.filter(case) for case in cases)]))
        self.plane = ControlPlane(work, folder)
        self.plane.wait_ready()
        self.envoy = Envoy(
            work,
            ProxyNode(type="router", name="edge-0", namespace="edge", ip="10.99.0.3", labels={"istio": "edge"}),
            self.plane.xds,
        )
        self._dumps: dict[str, Any] = {}

    def filter(self, case: Case) -> Plain:
        """Return the EnvoyFilter of a case."""
        at = self.at[case.name]
        text = (
            ", ".join(case.patches)
            .replace("PORT", str(at.port))
            .replace("SPARE", str(at.spare))
            .replace("BETA", str(self.beta.port))
        )
        return make(
            "EnvoyFilter", case.name.lower().replace("_", "-").replace(" ", "."), f"{{configPatches: [{text}]}}", "edge"
        )

    def _base(self) -> list[Plain]:
        beta = self.beta.port
        hosts = [
            ("usual", self.usual.port, "HTTP"),
            ("other", beta, "HTTP"),
            ("gone", beta, "HTTP"),
            ("echo", self.echo.port, "TCP"),
        ]
        entries = [
            make(
                "ServiceEntry",
                name,
                json.dumps(
                    {
                        "hosts": [f"{name}.test"],
                        "resolution": "STATIC",
                        "location": "MESH_EXTERNAL",
                        "ports": [{"number": 80, "name": "p", "protocol": protocol}],
                        "endpoints": [{"address": "127.0.0.1", "ports": {"p": port}}],
                    }
                ),
                "edge",
            )
            for name, port, protocol in hosts
        ]
        plain = [
            {"name": "old", "match": [{"uri": {"exact": "/old"}}], "redirect": {"uri": "/new"}},
            {"name": "main", "route": [{"destination": {"host": "usual.test"}}]},
        ]
        ports = {kind: [self.at[c.name].port for c in self._cases if c.protocol == kind] for kind in PROTOCOLS}
        to_echo = [{"destination": {"host": "echo.test", "port": {"number": 80}}}]
        tcp = [{"match": [{"port": port} for port in ports["tcp"]], "route": to_echo}]
        tls = [
            {"match": [{"port": port, "sniHosts": [name]}], "route": to_echo}
            for port in ports["tls"]
            for name in ("kept.test", "gone.test")
        ]
        servers = [self._server(number, case) for number, case in enumerate(self._cases)]
        gateway = make("Gateway", "front", json.dumps({"selector": {"istio": "edge"}, "servers": servers}), "edge")
        rules = {"hosts": ["*"], "gateways": ["front"], "http": plain, "tcp": tcp}
        passing = {"hosts": ["kept.test", "gone.test"], "gateways": ["front"], "tls": tls}
        return [
            gateway,
            *entries,
            *(
                make("VirtualService", name, json.dumps(spec), "edge")
                for name, spec in (("all", rules), ("tls", passing))
            ),
        ]

    def _server(self, number: int, case: Case) -> Plain:
        port = {
            "number": self.at[case.name].port,
            "name": f"{case.protocol}-{number}",
            "protocol": PROTOCOLS[case.protocol],
        }
        match: Plain = (
            {"tls": {"mode": "PASSTHROUGH"}, "hosts": ["kept.test", "gone.test"]}
            if case.protocol == "tls"
            else {"hosts": ["*"]}
        )
        return {"port": port, "bind": "127.0.0.1", **match}

    # -- configuration -----------------------------------------------------------------------------------------------------

    def wait_until_configured(self) -> None:
        """Wait until Envoy has all listeners, and store its configuration dump."""

        def is_complete() -> bool:
            self.envoy.check_alive()
            self._dumps = {
                entry["@type"].rpartition(".")[2]: entry
                for entry in json.loads(self.envoy.get("/config_dump"))["configs"]
            }
            removed = {self.at["LISTENER REMOVE"].port}
            added = {self.at[name].spare for name in ("LISTENER ADD", "LISTENER INSERT_FIRST")}
            return ({at.port for at in self.at.values()} - removed) | added <= self.listeners().keys()

        eventually(is_complete, 60, f"listeners of the gateway: {self.envoy.tail(5)}")

    def listeners(self) -> dict[int, Plain]:
        """Return every active listener by port."""
        entries = self._dumps["ListenersConfigDump"].get("dynamic_listeners", ())
        active = [entry["active_state"]["listener"] for entry in entries if "active_state" in entry]
        return {item["address"]["socket_address"]["port_value"]: item for item in active}

    def dump(self, kind: str, part: str, field: str, name: str) -> Plain:
        """Return a resource of the configuration dump by name, or {}."""
        return next((entry[field] for entry in self._dumps[kind].get(part, ()) if entry[field]["name"] == name), {})

    def beta_paths(self) -> list[str]:
        return [request.path for request in self.beta.requests]

    def stop(self) -> None:
        self.envoy.stop()
        self.plane.stop()
        for server in (self.usual, self.beta, self.echo):
            server.stop()


def _distinct_ports(count: int) -> list[int]:
    ports: dict[int, None] = {}
    while len(ports) < count:
        ports[free_port()] = None
    return list(ports)
