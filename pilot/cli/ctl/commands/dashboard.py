"""pilotctl dashboard: forward the web interface of a component to this machine."""

from __future__ import annotations

import threading
import webbrowser
from typing import NamedTuple

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, default_namespace, selects_cluster, with_cluster
from pilot.cli.ctl.connection import SYSTEM
from pilot.cli.ctl.envoy import ADMIN_PORT
from pilot.cli.ctl.forwarding import find_pods, forward
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.cli.ctl.workload_name import find_workload_pod, parse_workload


class Site(NamedTuple):
    """A web interface: the labels of its Pods, and its port and path."""

    selector: str
    port: int
    path: str = ""


SITES = {
    "istiod": Site("app=istiod", 15014, "/debug/dashboard"),
    "istiod-debug": Site("app=istiod", 15014, "/debug"),
    "controlz": Site("app=istiod", 9876),
    "prometheus": Site("app.kubernetes.io/name=prometheus", 9090),
    "grafana": Site("app.kubernetes.io/name=grafana", 3000),
    "kiali": Site("app=kiali", 20001, "/kiali"),
    "jaeger": Site("app=jaeger", 16686),
    "zipkin": Site("app=zipkin", 9411),
    "skywalking": Site("app=skywalking-ui", 8080),
}
PROXIES = ("envoy", "proxy")


@click.command()
@click.argument("site", default="istiod", type=click.Choice((*SITES, *PROXIES)))
@click.argument("pod", required=False, metavar="[[KIND/]NAME[.NAMESPACE]]")
@click.option("-i", "--istioNamespace", "system", default=SYSTEM, show_default=True, help="namespace of the component")
@click.option(
    "-n",
    "--namespace",
    type=ANY_NAMESPACE,
    default="",
    help="namespace of the Pods (default: that of the component; of proxies, that of the context or default)",
)
@click.option("-l", "--selector", default="", help="labels of the Pods, instead of those of SITE")
@click.option("--browser/--no-browser", default=True, help="open the first address in a browser (default)")
@with_cluster
def dashboard(
    cluster: Cluster, site: str, pod: str | None, system: str, namespace: str, selector: str, browser: bool
) -> None:
    """Forward the web interface of SITE to this machine until Ctrl-C.

    Each running Pod of SITE, such as each replica of istiod, has an address of its own. NAME selects one Pod, or the
    first one of a workload such as deployment/web. `dashboard envoy POD.NAMESPACE` forwards the admin interface of a
    proxy, and `dashboard envoy -l NAME=VALUE` those of the Pods with a label.
    """
    ctx = click.get_current_context()
    if not selects_cluster(ctx):
        raise CommandError(f"dashboards forward Pods of a cluster, and there is no kubeconfig{_local_hint(site)}")
    if pod and selector:
        raise click.UsageError("NAME and --selector are mutually exclusive")
    labels, port, path = Site("", ADMIN_PORT) if site in PROXIES else SITES[site]
    labels = selector or labels
    if not (pod or labels):
        raise click.UsageError("specify POD.NAMESPACE or --selector")
    place = namespace or (default_namespace() if site in PROXIES else system)
    pods = [find_workload_pod(cluster, parse_workload(pod, place))] if pod else find_pods(cluster, place, labels)
    if not pods:
        raise CommandError(f"no running Pod in the namespace {place} has the labels {labels}")
    keys = [(str(plain["metadata"]["namespace"]), str(plain["metadata"]["name"])) for plain in pods]
    forwarding = forward(ctx, cluster)
    addresses = [f"http://127.0.0.1:{forwarding.open(*key, port).port}{path}" for key in keys]
    for (owner, name), address in zip(keys, addresses, strict=True):
        click.echo(f"{address}   {name}.{owner}")
    if browser:
        webbrowser.open(addresses[0])
    wait()


def _local_hint(site: str) -> str:
    """Return the fix without a kubeconfig: its options, and the address of a component that may run on this machine."""
    options = " (--kubeconfig, KUBECONFIG)"
    if site in PROXIES:
        return f"{options}; for a proxy on this machine, open http://127.0.0.1:{ADMIN_PORT}"
    labels, port, path = SITES[site]
    if labels != SITES["istiod"].selector:
        return options
    return f"{options}; for a control plane on this machine, open http://127.0.0.1:{port}{path}"


def wait() -> None:
    """Wait until Ctrl-C."""
    threading.Event().wait()
