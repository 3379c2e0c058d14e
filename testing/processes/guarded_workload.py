"""A workload behind a stock Envoy on loopback ports, with policies that tests change."""

from __future__ import annotations

import json
import pathlib
import socketserver
import threading
from collections.abc import Mapping
from concurrent import futures
from typing import Any

import grpc
import yaml
from envoy.service.auth.v3 import external_auth_pb2, external_auth_pb2_grpc

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.clients.mesh_client import MeshClient
from testing.mesh.objects import make
from testing.processes.agent_stub import Agent, Root
from testing.processes.process import ControlPlane, Envoy, eventually, free_port
from testing.servers.backends import Backend

IDENTITY = "spiffe://cluster.local/ns/shop/sa/books"
Policy = tuple[str, str]
"""The kind and the spec, as YAML, of a policy."""


class Echo:
    """A TCP server that echoes a line."""

    def __init__(self) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(self.rfile.readline())

        socketserver.ThreadingTCPServer.daemon_threads = True
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class ExternalAuthorizer(external_auth_pb2_grpc.AuthorizationServicer):
    """A gRPC authorizer. It allows requests with the header `x-ticket: good`, and connections from 127.0.0.2."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        external_auth_pb2_grpc.add_AuthorizationServicer_to_server(self, self._server)
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def Check(self, request: Any, context: Any) -> Any:
        attributes = request.attributes
        http, source = attributes.request.http, attributes.source.address.socket_address.address
        self.requests.append(http.path or source)
        is_allowed = http.headers.get("x-ticket") == "good" if http.path else source == "127.0.0.2"
        response = external_auth_pb2.CheckResponse()
        response.status.code = 0 if is_allowed else 7
        return response

    def stop(self) -> None:
        self._server.stop(None)


class GuardedWorkload:
    """The workload `books` in namespace `shop`: HTTP on `http` and `other`, TCP on `tcp`.

    `mesh` extends the mesh config.
    """

    def __init__(self, work: pathlib.Path, mesh: str = "", more: tuple[str, ...] = ()) -> None:
        self.work, self.folder = work, work / "config"
        self.folder.mkdir()
        self.http, self.other, self.tcp, self.authorizer_port, self.http_authorizer_port = (
            free_port() for _ in range(5)
        )
        self.backend, self.echo, self.authorizer = Backend("books"), Echo(), ExternalAuthorizer()
        self.refusing = Backend("refusing")
        self.refusing.fail = 1_000_000
        self.plane = ControlPlane(work, self._write_base(), self._mesh(mesh), more=more)
        self.root = Root()
        self.agent = Agent(self.root, IDENTITY, work / "agent.sock")
        self.client = MeshClient(self.root, work)
        self.plane.wait_ready()
        node = ProxyNode(
            type="sidecar",
            name="books-0",
            namespace="shop",
            ip="10.99.0.1",
            labels={"app": "books"},
            service_account="books",
        )
        self.envoy = Envoy(work, node, self.plane.xds, self.agent.socket)
        self._round = 0

    def _mesh(self, more: str) -> str:
        providers = [
            {
                "name": "judge",
                "envoyExtAuthzGrpc": {"service": "judge.test", "port": self.authorizer_port, "timeout": "5s"},
            },
            {
                "name": "refusing",
                "envoyExtAuthzHttp": {"service": "refusing.test", "port": self.http_authorizer_port, "timeout": "5s"},
            },
        ]
        config = {
            "extensionProviders": providers,
            "defaultConfig": {"interceptionMode": "NONE"},
            **(yaml.safe_load(more) or {}),
        }
        return json.dumps(config)

    def _write_base(self) -> pathlib.Path:
        ingress = [
            {
                "port": {"number": number, "protocol": protocol, "name": name},
                "bind": "127.0.0.1",
                "captureMode": "NONE",
                "defaultEndpoint": end,
            }
            for name, number, protocol, end in (
                ("http", self.http, "HTTP", f"127.0.0.1:{self.backend.port}"),
                ("other", self.other, "HTTP", f"127.0.0.1:{self.backend.port}"),
                ("tcp", self.tcp, "TCP", f"127.0.0.1:{self.echo.port}"),
            )
        ]
        objects = [make("Sidecar", "books", json.dumps({"ingress": ingress, "egress": [{"hosts": ["*/*"]}]}), "shop")]
        for name, port, backend_port, protocol in (
            ("judge", self.authorizer_port, self.authorizer.port, "GRPC"),
            ("refusing", self.http_authorizer_port, self.refusing.port, "HTTP"),
        ):
            ports = [{"number": port, "name": "p", "protocol": protocol}]
            endpoints = [{"address": "127.0.0.1", "ports": {"p": backend_port}}]
            spec = {
                "hosts": [f"{name}.test"],
                "resolution": "STATIC",
                "location": "MESH_EXTERNAL",
                "ports": ports,
                "endpoints": endpoints,
            }
            objects.append(make("ServiceEntry", name, json.dumps(spec), "shop"))
        (self.folder / "base.yaml").write_text(yaml.safe_dump_all(objects))
        return self.folder

    def apply(self, *policies: Policy, annotations: Mapping[str, str] | None = None) -> None:
        """Replace the workload's policies, and wait until its Envoy has them."""
        self._round += 1
        mark = f"round-{self._round}"
        marker = ("AuthorizationPolicy", "action: AUDIT, rules: [{from: [{source: {namespaces: [nowhere]}}]}]")
        objects = []
        for index, (kind, spec) in enumerate((marker, *policies)):
            annotation_text = json.dumps(dict(annotations or {})) if index else "{}"
            objects.append(make(kind, f"{mark}-{index}", f"{{{spec}}}", "shop", annotations=annotation_text))
        (self.folder / "policies.next").write_text(yaml.safe_dump_all(objects))
        (self.folder / "policies.next").rename(self.folder / "policies.yaml")

        def active() -> bool:
            self.envoy.check_alive()
            dump = self.envoy.get("/config_dump?resource=dynamic_listeners")
            ports = (self.http, self.other, self.tcp)
            states = [entry["active_state"] for entry in json.loads(dump).get("configs", ()) if "active_state" in entry]
            current = [s for s in states if f"policy[{mark}-0]" in json.dumps(s)]
            return len(
                {port for port in ports for s in current if f"127.0.0.1_{port}" == s["listener"]["name"]}
            ) == len(ports)

        eventually(active, 30, f"policies of {mark} in Envoy: {self.envoy.tail(5)}")

    def stop(self) -> None:
        self.envoy.stop()
        self.plane.stop()
        self.agent.stop()
        for server in (self.backend, self.refusing, self.echo, self.authorizer):
            server.stop()
