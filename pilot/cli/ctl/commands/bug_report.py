"""pilotctl bug-report: collect diagnostic data in an archive."""

from __future__ import annotations

import functools
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import track

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, with_cluster
from pilot.cli.ctl.command import with_client
from pilot.cli.ctl.envoy import request_admin
from pilot.cli.ctl.replicas import Replicas
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind
from pilot.lib.build_info import build_info
from pilot.lib.redact import redact

# Pages that are redundant, change state, or are fetched per proxy
_SKIPPED_PAGES = frozenset(
    {
        "list",
        "rollout",
        "force_disconnect",
        "config_dump",
        "edsz",
        "ecdsz",
        "ndsz",
        "sidecarz",
        "authz",
        "describe",
        "explain",
        "endpointz",
        "pushcontext",
    }
)
_PROXY_PAGES = ("config_dump", "authz", "describe")
_ENVOY_PAGES = ("config_dump?include_eds", "clusters", "stats", "server_info")
PROXIES = 20
LARGEST_LOG = 16 << 20
"""Maximum number of bytes of a log."""
PROXY_CONTAINER = "istio-proxy"
_POD = VersionedKind("v1", "Pod")
_COMPONENTS = ("app in (istiod,ztunnel)", "k8s-app=istio-cni-node")
"""Label selectors of the Pods of control planes, ztunnels and the CNI plugin."""


class Item(NamedTuple):
    """A file in the archive, and the function that fetches its content."""

    name: str
    fetch: Callable[[], str]


@click.command()
@click.option(
    "-o", "--output", metavar="FILE", help="file to write (default bug-report-TIME.tar.gz in the working directory)"
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    help=f"proxy to include; may be repeated (default: the first {PROXIES} connected proxies)",
)
@click.option(
    "--envoy", "envoys", multiple=True, metavar="URL", help="admin address of an Envoy to include; may be repeated"
)
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="LINES",
    help=f"last lines of each log to include; 0 for all; at most {LARGEST_LOG >> 20} MiB",
)
@click.option("--skip-logs", "without_logs", is_flag=True, help="do not include logs, which require an API server")
@click.option("--skip-proxy-debug", "without_proxies", is_flag=True, help="do not include the configuration of proxies")
@with_client
@with_cluster
def bug_report(
    client: Replicas,
    cluster: Cluster,
    output: str | None,
    proxies: Sequence[str],
    envoys: Sequence[str],
    tail: int,
    without_logs: bool,
    without_proxies: bool,
) -> None:
    """Collect debug pages, metrics, proxy configuration and logs in an archive.

    The logs are those of the Pods of the mesh's components, and of the proxies that are included. Keys, tokens and
    passwords are redacted. Data that cannot be fetched is recorded as missing in the archive.
    """
    client.text("version")  # fails early if the control plane is unreachable
    path = output or time.strftime("bug-report-%Y%m%d-%H%M%S.tar.gz", time.gmtime())
    for proxy in proxies:
        client.get("syncz", proxyID=proxy)  # fails early if the proxy is not connected
    proxies = proxies or _connected(client)
    items = list(_items(client, () if without_proxies else proxies, envoys))
    items += () if without_logs else _logs(cluster, proxies, tail)
    missing = []
    try:
        with tarfile.open(path, "w:gz") as archive:
            for item in track(
                items,
                description="Collecting",
                console=Console(stderr=True),
                disable=not Console(stderr=True).is_terminal,
            ):
                text, fault = _text(item)
                missing += [fault] if fault else []
                _add(archive, item.name, redact(text))
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(
        f"{path}: {len(items) - len(missing)} files. Keys, tokens and passwords are redacted. "
        "Review the archive before sharing it."
    )
    for fault in missing:
        click.echo(f"  missing: {fault}", err=True)


def _items(client: Replicas, proxies: Sequence[str], envoys: Sequence[str]) -> Iterator[Item]:
    yield Item("pilotctl-version.txt", lambda: str(build_info()))
    pages = client.get("list")
    for replica in client.replicas:
        folder = f"replicas/{_file_name(replica.name)}/" if len(client.replicas) > 1 else ""
        yield Item(f"{folder}version.txt", functools.partial(replica.text, "version"))
        yield Item(f"{folder}metrics.txt", functools.partial(replica.text, "metrics"))
        for page in pages:
            name = page.partition("?")[0]
            if name == page and name not in _SKIPPED_PAGES:
                yield Item(f"{folder}debug/{name}.json", functools.partial(replica.text, f"debug/{name}"))
    for proxy in proxies:
        for page in _PROXY_PAGES:
            fetch = functools.partial(client.text, f"debug/{page}", proxyID=proxy)
            yield Item(f"proxies/{proxy}/{page}.json", fetch)
    for envoy in envoys:
        for page in _ENVOY_PAGES:
            name = f"envoys/{_file_name(envoy)}/{page.partition('?')[0]}.txt"
            yield Item(name, functools.partial(request_admin, envoy, page))


def _logs(cluster: Cluster, proxies: Sequence[str], tail: int) -> Iterator[Item]:
    """Yield the logs of the Pods of the mesh's components, and of the proxies in other Pods."""
    try:
        pods = cluster.run(lambda objects, _: _component_pods(objects))
    except CommandError as error:
        yield Item("logs.txt", functools.partial(_fail, error))
        return
    for pod in pods:
        for container in pod["spec"].get("containers", ()):
            yield _log(cluster, pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"], tail)
    components = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods}
    for proxy in proxies:
        name, _, namespace = proxy.rpartition(".")
        if name and (namespace, name) not in components:
            yield _log(cluster, namespace, name, PROXY_CONTAINER, tail)


def _log(cluster: Cluster, namespace: str, pod: str, container: str, tail: int) -> Item:
    key = ResourceKey(_POD, namespace, pod)
    return Item(
        f"logs/{namespace}/{pod}/{container}.log",
        lambda: cluster.run(lambda objects, _: objects.logs(key, container, tail, LARGEST_LOG)),
    )


async def _component_pods(objects: ObjectClient) -> list[dict[str, Any]]:
    lists = [await objects.list(_POD, selector) for selector in _COMPONENTS]
    return [pod for pods in lists for pod in pods]


def _fail(error: CommandError) -> str:
    raise error


def _connected(client: Replicas) -> list[str]:
    return sorted(status["proxy"] for status in client.get("syncz"))[:PROXIES]


def _file_name(address: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in address.rpartition("://")[2])


def _text(item: Item) -> tuple[str, str]:
    """Return the content of a file, and "". If it cannot be fetched, return a placeholder and an error message."""
    try:
        return item.fetch(), ""
    except CommandError as error:
        return json.dumps({"notThere": error.message}), f"{item.name}: {error.message}"


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(f"bug-report/{name}")
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))
