"""The configuration of a ztunnel, from its admin interface in a Pod or at an address, or from a file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, selected_cluster, with_cluster_options
from pilot.cli.ctl.connection import SYSTEM
from pilot.cli.ctl.envoy import ADMIN_PORT, parse_dump, request_admin
from pilot.cli.ctl.files import read_file
from pilot.cli.ctl.forwarding import find_pods, forward
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.cli.ctl.tables.ztunnels import PodKey, ZtunnelDump
from pilot.cli.ctl.workload_name import find_workload_pod, parse_workload

Function = TypeVar("Function", bound=Callable[..., Any])
Plain = dict[str, Any]
_APP = "ztunnel"
_HOW_TO_SAVE = (
    f"save one with: kubectl port-forward POD {ADMIN_PORT} & curl -s localhost:{ADMIN_PORT}/config_dump >FILE"
)
_SELECTOR = f"app={_APP}"


class ZtunnelSelection(NamedTuple):
    """The options that select ztunnels. `pod` is the argument of the command."""

    pod: str
    namespace: str
    node: str
    system: str
    address: str
    port: int

    def dump(self, needs_one: bool) -> ZtunnelDump:
        """Fetch the config_dump of the ztunnel. With `needs_one`, raise UsageError if several are selected."""
        if self.address:
            return read_ztunnel_dump(self._request(self.address, "config_dump"), f"the response of {self.address}")
        pods, workload = self._pods()
        if needs_one and len(pods) > 1:
            raise click.UsageError(f"the cluster has {len(pods)} ztunnels: specify POD or --node")
        text = self._request_pod(pods[0], "config_dump")
        return read_ztunnel_dump(text, f"the response of {pods[0].name}", workload)

    def post(self, page: str) -> list[tuple[str, str]]:
        """Send a POST request to each selected ztunnel, and return its name and response."""
        if self.address:
            return [(self.address, self._request(self.address, page, "POST"))]
        return [(f"{pod.name}.{pod.namespace}", self._request_pod(pod, page, "POST")) for pod in self._pods()[0]]

    def _pods(self) -> tuple[list[PodKey], PodKey | None]:
        """Return the Pods of the selected ztunnels, and the Pod that the user named if it is not a ztunnel."""
        cluster = selected_cluster(click.get_current_context())
        if not self.pod:
            return self._ztunnels(cluster, self.node), None
        plain = find_workload_pod(cluster, parse_workload(self.pod, self.namespace or self.system))
        key = _key(plain)
        if (plain["metadata"].get("labels") or {}).get("app", key.name.partition("-")[0]) == _APP:
            return [key], None
        node = plain.get("spec", {}).get("nodeName", "")
        if not node:
            raise CommandError(f"the Pod {key.namespace}/{key.name} is not on a node yet")
        return self._ztunnels(cluster, node), key

    def _ztunnels(self, cluster: Cluster, node: str) -> list[PodKey]:
        pods = find_pods(cluster, self.system, _SELECTOR)
        on_node = [_key(pod) for pod in pods if node in ("", pod["spec"].get("nodeName"))]
        if not on_node:
            place = f" on the node {node}" if node else ""
            raise CommandError(f"no ztunnel runs in the namespace {self.system}{place} (labels {_SELECTOR})")
        return on_node

    def _request_pod(self, pod: PodKey, page: str, method: str = "GET") -> str:
        ctx = click.get_current_context()
        port = forward(ctx, selected_cluster(ctx)).open(pod.namespace, pod.name, self.port)
        try:
            return self._request(f"127.0.0.1:{port.port}", page, method)
        except CommandError as error:
            if not port.error:
                raise
            raise CommandError(f"cannot reach {pod.name}.{pod.namespace}: {port.error}") from error

    def _request(self, address: str, page: str, method: str = "GET") -> str:
        return request_admin(address, page, method, _APP)


def read_ztunnel_dump(text: str, where: str, workload: PodKey | None = None, hint: str = "") -> ZtunnelDump:
    """Parse a config_dump. Raise CommandError with a hint if the text is not one of a ztunnel."""
    dump = parse_dump(text, where, "a config_dump of ztunnel", hint)
    if not isinstance(dump, dict) or not {"workloads", "services"} <= dump.keys():
        raise CommandError(f"{where} is not a config_dump of ztunnel: it has no workloads and services{hint}")
    return ZtunnelDump(dump, workload)


def _key(pod: Plain) -> PodKey:
    return PodKey(str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"]))


def with_ztunnels(function: Function) -> Function:
    """Add the options that select ztunnels to a command, and pass it a ZtunnelSelection as `ztunnels`."""

    @click.argument("pod", required=False, metavar="[[KIND/]NAME[.NAMESPACE]]")
    @click.option(
        "-n", "--namespace", type=ANY_NAMESPACE, default="", help="namespace of the Pod (default: that of ztunnels)"
    )
    @click.option("-i", "--istioNamespace", "system", default=SYSTEM, show_default=True, help="namespace of ztunnels")
    @click.option("--node", default="", help="use the ztunnel on this node")
    @click.option("--ztunnel", "address", default="", metavar="URL", help="use the ztunnel with this admin address")
    @click.option("--proxy-admin-port", "port", default=ADMIN_PORT, show_default=True, help="admin port of ztunnels")
    @with_cluster_options
    @functools.wraps(function)
    def command(pod: str | None, namespace: str, system: str, node: str, address: str, port: int, **more: Any) -> Any:
        if sum(map(bool, (pod, node, address, more.get("path")))) > 1:
            raise click.UsageError("NAME, --node, --ztunnel and --file are mutually exclusive")
        return function(ztunnels=ZtunnelSelection(pod or "", namespace, node, system, address, port), **more)

    return command  # type: ignore[return-value]


def with_ztunnel_dump(needs_one: bool = False) -> Callable[[Function], Function]:
    """Add the options of `with_ztunnels` and --file to a command, and pass it a ZtunnelDump as `dump`.

    Set `needs_one` if the data of each ztunnel differs.
    """

    def decorate(function: Function) -> Function:
        @click.option("-f", "--file", "path", metavar="FILE", help="read this config_dump; - for standard input")
        @with_ztunnels
        @functools.wraps(function)
        def command(ztunnels: ZtunnelSelection, path: str | None, **more: Any) -> Any:
            text = read_file(path).decode(errors="replace") if path else ""
            dump = read_ztunnel_dump(text, path, hint=f"; {_HOW_TO_SAVE}") if path else None
            return function(dump=dump or ztunnels.dump(needs_one), **more)

        return command  # type: ignore[return-value]

    return decorate
