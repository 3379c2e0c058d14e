"""pilotctl workload: create WorkloadGroups, and configure machines outside Kubernetes that join the mesh."""

from __future__ import annotations

import ipaddress
import json
import os
from typing import TYPE_CHECKING, Any

import click
import yaml

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, with_cluster
from pilot.cli.ctl.command import AliasGroup
from pilot.cli.ctl.connection import SYSTEM
from pilot.cli.ctl.control_plane_config import (
    CONFIG_MAP,
    INJECTOR,
    MESH,
    ControlPlaneConfig,
    find_config,
    get_existing,
)
from pilot.cli.ctl.files import read_file, write_file
from pilot.cli.ctl.output import write
from pilot.cli.ctl.request_texts import ANY_NAMESPACE, NAMESPACE, OBJECT_NAME
from pilot.cli.ctl.vm_files import VmOptions, VmWorkload, cluster_env, proxy_config, read_group
from pilot.ingest.decode import listed_objects
from pilot.ingest.files.documents import SyntaxFault, read_documents
from pilot.kube.object_client import ResourceKey, VersionedKind

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Plain = dict[str, Any]
DEFAULT_CLUSTER = "Kubernetes"
"""ID of the cluster of injected proxies if the values do not set it."""
_SERVICE, _ACCOUNT = VersionedKind("v1", "Service"), VersionedKind("v1", "ServiceAccount")
_GROUP = VersionedKind("networking.istio.io/v1", "WorkloadGroup")
_ENTRY = "WorkloadEntry"
_ROOTS = "istio-ca-root-cert"
EAST_WEST = "istio-eastwestgateway"
SECRET_MODE, PUBLIC_MODE = 0o600, 0o644


@click.group(cls=AliasGroup)
def workload() -> None:
    """Create WorkloadGroups, and configure machines outside Kubernetes that join the mesh."""


@workload.group(cls=AliasGroup)
def group() -> None:
    """Create WorkloadGroups."""


@group.command()
@click.option("--name", type=OBJECT_NAME, required=True, help="name of the WorkloadGroup")
@click.option("-n", "--namespace", type=NAMESPACE, required=True, help="namespace of the workloads")
@click.option("-l", "--labels", multiple=True, metavar="NAME=VALUE,…", help="labels of the workloads")
@click.option("-a", "--annotations", multiple=True, metavar="NAME=VALUE,…", help="annotations of the workloads")
@click.option("-p", "--ports", multiple=True, metavar="NAME=PORT,…", help="ports of the workloads")
@click.option(
    "-s",
    "--serviceAccount",
    "account",
    type=OBJECT_NAME,
    default="default",
    show_default=True,
    help="their ServiceAccount",
)
@click.option("--network", default="", help="their network")
@click.option("--locality", default="", metavar="REGION/ZONE/SUBZONE", help="their locality")
@click.option("-w", "--weight", type=click.IntRange(min=0, max=2**32 - 1), default=0, help="their weight")
def create(
    name: str,
    namespace: str,
    labels: tuple[str, ...],
    annotations: tuple[str, ...],
    ports: tuple[str, ...],
    account: str,
    network: str,
    locality: str,
    weight: int,
) -> None:
    """Print a WorkloadGroup, the template of the WorkloadEntries of a workload. Apply it with kubectl apply -f -."""
    numbers = {key: _port(key, value) for key, value in _pairs("--ports", ports).items()}
    metadata = {"annotations": _pairs("--annotations", annotations), "labels": _pairs("--labels", labels)}
    template = {
        "locality": locality,
        "network": network,
        "ports": numbers,
        "serviceAccount": account,
        "weight": weight,
    }
    plain = {
        "apiVersion": _GROUP.api_version,
        "kind": _GROUP.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"metadata": _present(metadata), "template": _present(template)},
    }
    write(yaml.safe_dump(plain, sort_keys=True).rstrip("\n"))


def _present(fields: Plain) -> Plain:
    return {name: value for name, value in fields.items() if value}


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [part.partition("=") for text in texts for part in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.UsageError(f"{option} {','.join(texts)!r}: use NAME=VALUE,NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _port(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise click.UsageError(f"--ports {name}={text}: {text!r} is no port")
    return int(text)


@workload.group(cls=AliasGroup)
def entry() -> None:
    """Configure the machines of WorkloadEntries."""


@entry.command()
@click.option("-f", "--file", "path", default="", help="WorkloadGroup, instead of --name; - for standard input")
@click.option("--name", default="", help="name of the WorkloadGroup")
@click.option("-n", "--namespace", type=ANY_NAMESPACE, default="", help="namespace of the WorkloadGroup")
@click.option("-o", "--output", "folder", required=True, metavar="DIR", help="directory for the files")
@click.option("--clusterID", "cluster_id", help="ID of the cluster (default: that of injected proxies)")
@click.option("--ingressIP", "ingress_ip", default="", metavar="IP", help="address of the east-west gateway")
@click.option(
    "--ingressService",
    "gateway",
    default=EAST_WEST,
    show_default=True,
    metavar="NAME[.NAMESPACE]",
    help="Service of the east-west gateway",
)
@click.option("--internalIP", "internal_ip", default="", metavar="IP", help="internal address of the machine")
@click.option("--externalIP", "external_ip", default="", metavar="IP", help="external address of the machine")
@click.option("--autoregister", is_flag=True, help="create a WorkloadEntry when the machine connects")
@click.option(
    "--capture-dns",
    "capture_dns",
    type=bool,
    default=True,
    is_flag=False,
    flag_value="true",
    show_default=True,
    help="resolve DNS names with the agent",
)
@click.option("--tokenDuration", "seconds", default=3600, show_default=True, help="lifetime of the token in seconds")
@click.option("-r", "--revision", default="", help="control plane revision (default: that of the tag default)")
@click.option("-i", "--istioNamespace", "system", default=SYSTEM, show_default=True, help="namespace of the mesh")
@with_cluster
def configure(
    cluster: Cluster,
    path: str,
    name: str,
    namespace: str,
    folder: str,
    cluster_id: str | None,
    ingress_ip: str,
    gateway: str,
    seconds: int,
    revision: str,
    system: str,
    **more: Any,
) -> None:
    """Write the files with which a machine outside Kubernetes joins the mesh.

    The files are cluster.env, mesh.yaml, hosts, root-cert.pem and istio-token, which is a secret. The machine belongs
    to a WorkloadGroup in a file or in the cluster.
    """
    if not (path or (name and namespace)):
        raise click.UsageError("specify --file, or --name and --namespace of a WorkloadGroup in the cluster")
    if more["internal_ip"] and more["external_ip"]:
        raise click.UsageError("--internalIP and --externalIP are mutually exclusive")

    async def work(objects: ObjectClient, _: ObjectClient) -> tuple[VmWorkload, dict[str, str]]:
        key = ResourceKey(_GROUP, namespace, name)
        member = read_group(_read_group(path, namespace) if path else await get_existing(objects, key))
        installed = await find_config(objects, system, revision)
        own_id = await _cluster_id(objects, installed) if cluster_id is None else cluster_id
        options = VmOptions(system=system, revision=installed.revision, cluster_id=own_id, **more)
        config = proxy_config(member, await _mesh(objects, installed), options)
        address = ingress_ip or await _gateway_address(objects, system, gateway)
        return member, {
            "cluster.env": cluster_env(member, config, options),
            "mesh.yaml": yaml.safe_dump({"defaultConfig": config}, sort_keys=True),
            "root-cert.pem": await _root(objects, member.namespace),
            "istio-token": await _token(objects, member, seconds),
            "hosts": _hosts(address, options.host),
        }

    member, files = cluster.run(work)
    os.makedirs(folder, exist_ok=True)
    for file, text in files.items():
        write_file(os.path.join(folder, file), text, SECRET_MODE if file == "istio-token" else PUBLIC_MODE)
    token = os.path.join(folder, "istio-token")
    click.echo(f"! {token} is a secret: a token of the ServiceAccount {member.namespace}/{member.account}", err=True)
    write(f"✔ {', '.join(files)} written to {folder}")


def _read_group(path: str, namespace: str) -> Plain:
    """Return the only WorkloadGroup in a file. Raise CommandError if the file has none or several."""
    try:
        documents = read_documents(read_file(path), path)
    except SyntaxFault as fault:
        raise CommandError(f"{path}:{fault.line}: {fault}" if fault.line else f"{path}: {fault}") from fault
    objects = [item for one in documents for _, item in listed_objects(one.plain, "") if isinstance(item, dict)]
    groups = [item for item in objects if item.get("kind") == _GROUP.name]
    if len(groups) > 1:
        names = ", ".join(str((item.get("metadata") or {}).get("name")) for item in groups)
        raise CommandError(f"{path} contains {len(groups)} objects of the kind {_GROUP.name}, expected one: {names}")
    if not groups:
        kinds = ", ".join(dict.fromkeys(str(item.get("kind")) for item in objects)) or "no objects"
        hint = f"; pilotctl workload group create prints a {_GROUP.name}" if _ENTRY in kinds else ""
        raise CommandError(f"{path} contains no {_GROUP.name}, but {kinds}{hint}")
    plain = groups[0]
    metadata = plain.get("metadata") or {}
    return {**plain, "metadata": {**({"namespace": namespace} if namespace else {}), **metadata}}


async def _cluster_id(objects: ObjectClient, installed: ControlPlaneConfig) -> str:
    """Return the ID of the cluster that the injector sets. Raise CommandError if its values are unusable."""
    key = installed.key(INJECTOR)
    try:
        values = json.loads((await get_existing(objects, key)).get("data", {}).get("values", "{}"))
        return str(values["global"]["multiCluster"]["clusterName"] or DEFAULT_CLUSTER)
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{key} does not contain the ID of the cluster; use --clusterID") from error


async def _mesh(objects: ObjectClient, installed: ControlPlaneConfig) -> Plain:
    key = installed.key(MESH)
    try:
        mesh = yaml.safe_load((await get_existing(objects, key)).get("data", {}).get("mesh", "")) or {}
    except yaml.YAMLError as error:
        raise CommandError(f"the mesh config in {key} is not YAML: {error}") from error
    return mesh if isinstance(mesh, dict) else {}


async def _root(objects: ObjectClient, namespace: str) -> str:
    key = ResourceKey(CONFIG_MAP, namespace, _ROOTS)
    return str((await get_existing(objects, key)).get("data", {}).get("root-cert.pem", ""))


async def _token(objects: ObjectClient, member: VmWorkload, seconds: int) -> str:
    spec = {"audiences": ["istio-ca"], "expirationSeconds": seconds}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    key = ResourceKey(_ACCOUNT, member.namespace, member.account)
    return str((await objects.post(key, body, "token"))["status"]["token"])


async def _gateway_address(objects: ObjectClient, system: str, gateway: str) -> str:
    """Return the external address of the east-west gateway, or "" if it has none."""
    name, _, namespace = gateway.partition(".")
    service = await objects.get(ResourceKey(_SERVICE, namespace or system, name)) or {}
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    addresses = [entry["ip"] for entry in ingress if "ip" in entry] + (service.get("spec", {}).get("externalIPs") or [])
    return str(addresses[0]) if addresses else ""


def _hosts(address: str, host: str) -> str:
    """Return the content of the file hosts. Without a valid address, print a warning and return ""."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        reason = f"{address} is not an IP address" if address else "the east-west gateway has no address"
        click.echo(f"! the file hosts is empty, because {reason}; --ingressIP sets the address of {host}", err=True)
        return ""
    return f"{address} {host}\n"
