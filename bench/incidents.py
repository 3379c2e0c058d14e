"""Twelve incidents in a mesh of 501 services and 251 proxies, to judge how fast a reader explains them.

    python bench/incidents.py FOLDER
    python bench/incidents.py FOLDER --answers

It writes the mesh to FOLDER, starts a control plane and the proxies, and then makes the changes that cause the
incidents, a second apart. It prints the tasks, or with --answers also the answers, and runs until interrupted. The
dashboard is on port 15014, and `pilotctl --address :15014` inspects the same control plane.
"""

from __future__ import annotations

import argparse
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request
from typing import NamedTuple

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench.page_mesh import BAD_SCRIPT_ERROR, Plain, bad_script, canary, make_object, places, write, write_mesh

SERVICES, PROXIES, SILENT = 501, 251, 2


class Incident(NamedTuple):
    """Objects that change in a file, the question that somebody then asks, and the answer. `file` is "" without a change."""

    file: str
    objects: list[Plain]
    task: str
    answer: str


def virtual_service(name: str, namespace: str, host: str, http: Plain) -> Plain:
    return make_object("VirtualService", name, namespace, {"hosts": [host], "http": [http]})


def destination(name: str, namespace: str) -> Plain:
    return {"destination": {"host": f"{name}.{namespace}.svc.cluster.local"}}


def incidents() -> list[Incident]:
    """Return the incidents in the order of their changes."""
    checkout = "checkout.payments.svc.cluster.local"
    subsets = [{"name": name, "labels": {"version": name}} for name in ("v1", "v2")]
    abort = {"abort": {"percentage": {"value": 30}, "httpStatus": 500}}
    edge = {"hosts": ["accounts.example.com"], "gateways": ["ingress/edge"]}
    misspelt = {"route": [{"destination": {"host": "web.acounts.svc.cluster.local"}}]}
    egress = [{"hosts": ["./*"]}]
    rules = [{"to": [{"operation": {"paths": ["/v2/*"]}}]}]
    deny = {"selector": {"matchLabels": {"app": "feed"}}, "action": "DENY", "rules": rules}
    labels = {"kubernetes.io/service-name": "tax"}
    unready = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "tax-0", "namespace": "support", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.200.0.1"], "conditions": {"ready": False}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }
    quotes = next(p for p in places(SERVICES) if (p.namespace, p.name) == ("fraud", "quotes"))
    return [
        Incident(
            "payments-checkout.yaml",
            [
                make_object("DestinationRule", "checkout", "payments", {"host": checkout, "subsets": subsets}),
                virtual_service(
                    "checkout",
                    "payments",
                    checkout,
                    {"route": [{"destination": {"host": checkout, "subset": "v3"}}]},
                ),
            ],
            "Requests to the service checkout of the namespace payments end with 503. Why, and which object and field?",
            "VirtualService payments/checkout spec.http[0].route[0] names the subset v3, which no DestinationRule has.",
        ),
        Incident(
            "ingress.yaml",
            [make_object("VirtualService", "edge", "accounts", edge | {"http": [misspelt]})],
            "The ingress answers for accounts.example.com with errors since a few minutes. Which change broke it?",
            "The last change of VirtualService accounts/edge (ingress.yaml): its host web.acounts… does not exist.",
        ),
        Incident(
            "pricing-quotes.yaml",
            [
                virtual_service(
                    "quotes",
                    "pricing",
                    "quotes.pricing.svc.cluster.local",
                    {"fault": abort, "route": [destination("quotes", "pricing")]},
                )
            ],
            "About a third of the requests to quotes in the namespace pricing fail. Why?",
            "VirtualService pricing/quotes aborts 30 % of the requests with 500.",
        ),
        Incident(
            "support.yaml",
            [unready],
            "Nothing reaches tax in the namespace support from its new endpoint 10.200.0.1. Why?",
            "The endpoint 10.200.0.1 in the EndpointSlice support/tax-0 is not ready.",
        ),
        Incident(
            "notify-mail.yaml",
            [
                virtual_service(
                    "mail",
                    "notify",
                    "mail.notify.svc.cluster.local",
                    {"timeout": "25s", "retries": {"attempts": 5}, "route": [destination("mail", "notify")]},
                )
            ],
            "Calls to mail in the namespace notify take up to 25 s. Which object sets that time, and how many retries?",
            "VirtualService notify/mail: timeout 25s, 5 retries.",
        ),
        Incident(
            "inventory-sidecar.yaml",
            [make_object("Sidecar", "default", "inventory", {"egress": egress})],
            "Since a few minutes, proxies in the namespace inventory do not know the service web of the namespace search "
            "any more. Which object hides it?",
            "Sidecar inventory/default admits only hosts of its own namespace (./*).",
        ),
        Incident(
            "media-feed.yaml",
            [make_object("AuthorizationPolicy", "feed-deny", "media", deny, "security.istio.io/v1")],
            "GET /v2/items from events to feed in the namespace media is answered with 403. Which policy does it?",
            "AuthorizationPolicy media/feed-deny (DENY of /v2/*).",
        ),
        Incident("", [], "Who may call ledger in the namespace payments, and with which methods?", "web; GET, POST."),
        Incident(
            "fraud-quotes.yaml",
            [bad_script("served-by", quotes)],
            "Which proxy refuses its configuration, with which error of Envoy, and which object causes it?",
            f"The sidecar of quotes in fraud: {BAD_SCRIPT_ERROR} (EnvoyFilter fraud/served-by).",
        ),
        Incident(
            "routes.yaml",
            canary("shop", "cart", "v2", weight=50),
            "Is the last change of VirtualService shop/cart live on every proxy that it affects? Which proxies do not have "
            "it, and why?",
            "No: the proxy of fraud/quotes rejects its routes because of EnvoyFilter fraud/served-by, and two have not "
            "answered since their start.",
        ),
        Incident(
            "",
            [],
            "Which certificates end within a week, and where are they used?",
            "ingress/edge-certificate in four days (Gateway ingress/edge); ingress/old-certificate has expired.",
        ),
        Incident(
            "",
            [],
            "Does web in the namespace reviews accept plaintext, and which object decides that?",
            "The default PERMISSIVE accepts it, but AuthorizationPolicy reviews/web-callers rejects callers without identity.",
        ),
    ]


def edit(file: pathlib.Path, objects: list[Plain]) -> None:
    """Add objects to a file, or replace those that it has."""
    existing = list(yaml.safe_load_all(file.read_text())) if file.exists() else []
    by_name = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in existing + objects}
    write(file, list(by_name.values()))


def wait_ready(url: str) -> None:
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="folder for the objects")
    parser.add_argument("--answers", action="store_true", help="print the answers too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    write_mesh(options.folder, SERVICES)
    programs = pathlib.Path(sys.executable).parent
    plane = subprocess.Popen([programs / "pilot-discovery", "discovery", f"--configDir={options.folder}"])
    page_mesh = pathlib.Path(__file__).with_name("page_mesh.py")
    proxies = [f"--services={SERVICES}", f"--proxies={PROXIES}", f"--silent={SILENT}"]
    try:
        wait_ready("http://127.0.0.1:8080/ready")
        command = [sys.executable, page_mesh, options.folder, "--keep", *proxies, "--address=127.0.0.1:15010"]
        fleet = subprocess.Popen(command)
        try:
            time.sleep(15)
            for number, incident in enumerate(incidents(), 1):
                if incident.file:
                    edit(options.folder / incident.file, incident.objects)
                    time.sleep(1)
                print(f"{number}. {incident.task}", flush=True)
                if options.answers:
                    print(f"   {incident.answer}", flush=True)
            plane.wait()
        finally:
            fleet.terminate()
            fleet.wait()
    finally:
        plane.terminate()
        plane.wait()


if __name__ == "__main__":
    main()
