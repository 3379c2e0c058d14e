"""Mistakes in files: the messages name the cause and the remedy."""

from __future__ import annotations

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.analysis import analyze, read_objects
from pilot.mesh.analysis.listed import CHECKS
from pilot.settings.parse import load

INGRESS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: istio-ingressgateway, namespace: istio-system}
spec:
  template:
    metadata: {labels: {istio: ingressgateway}}
    spec: {containers: [{name: istio-proxy, image: auto}]}
"""
CART = """
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: 8080}]}
"""
CART_V1 = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: cart, namespace: shop}
spec:
  template:
    metadata: {labels: {app: cart, version: v1}}
    spec: {containers: [{name: c, image: cart, ports: [{name: web, containerPort: 8080}]}]}
"""
CART_RULE = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec: {host: cart, subsets: [{name: v1, labels: {version: v1}}]}
"""


def findings(*documents: str) -> list[str]:
    """Return the problems in a file as `severity code: path: message`."""
    objects = read_objects({"file.yaml": "\n---\n".join(documents).encode()})
    problems = analyze(objects, MeshConfig(), load([], {}).settings.mesh, CHECKS)
    return [f"{p.severity} {p.code}: {p.path}: {p.message}" for p in problems]


def gateway(selector: str) -> str:
    return f"""
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: gw, namespace: shop}}
spec: {{selector: {selector}, servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [x.com]}}]}}
"""


def policy(labels: str, rules: str = "[{}]", namespace: str = "shop") -> str:
    return f"""
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: p, namespace: {namespace}}}
spec: {{selector: {{matchLabels: {labels}}}, rules: {rules}}}
"""


# -- Pod templates are workloads


def test_a_subset_has_the_workload_of_a_template() -> None:
    assert findings(CART, CART_V1, CART_RULE) == []


def test_a_subset_has_the_workload_of_a_pod_that_has_not_run() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop, labels: {app: cart, version: v1}}\nspec: {}"
    assert findings(CART, pod, CART_RULE) == []


def test_a_subset_without_known_workloads_is_not_reported() -> None:
    assert findings(CART, CART_RULE) == []


def test_a_subset_that_no_template_of_the_service_has_is_reported() -> None:
    other = CART_V1.replace("app: cart, version: v1", "app: cart, version: '1.0'")
    elsewhere = CART_V1.replace("app: cart", "app: other").replace("name: cart", "name: other")
    assert findings(CART, other, elsewhere, CART_RULE) == [
        "warning subset-without-endpoints: spec.subsets[0].labels: no endpoint of cart has the labels version: v1; "
        "values of version are 1.0"
    ]


def test_a_gateway_whose_selector_is_misspelt_names_the_template() -> None:
    assert findings(INGRESS, gateway("{istio: ingress-gateway}")) == [
        "warning selector-without-workloads: spec.selector: no workload has the labels istio=ingress-gateway; "
        "did you mean istio=ingressgateway (Deployment istio-system/istio-ingressgateway)?"
    ]
    assert findings(INGRESS, gateway("{istoi: ingressgateway}"))[0].endswith(
        "did you mean istio=ingressgateway (Deployment istio-system/istio-ingressgateway)?"
    )
    assert findings(INGRESS, gateway("{istio: ingressgateway}")) == []


def test_a_gateway_may_select_a_router_that_is_not_in_the_files() -> None:
    assert findings(CART, CART_V1, gateway("{istio: ingressgateway}")) == []


def test_a_policy_that_selects_no_template_of_its_namespace_is_reported() -> None:
    assert findings(CART_V1, policy("{app: crat}")) == [
        "warning selector-without-workloads: spec.selector: no workload in namespace shop has the labels app=crat; "
        "did you mean app=cart (StatefulSet shop/cart)?"
    ]
    assert findings(CART_V1, policy("{app: cart}")) == []
    assert findings(CART_V1, policy("{app: x}", namespace="other")) == []


def test_a_cron_job_has_a_template() -> None:
    job = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: night, namespace: shop}
spec: {jobTemplate: {spec: {template: {metadata: {labels: {app: night}}, spec: {containers: []}}}}}
"""
    assert findings(CART_V1, job, policy("{app: night}")) == []


# -- names of ports

NAMED = CART.replace("targetPort: 8080", "targetPort: http")


def test_a_target_port_that_no_container_has_is_reported() -> None:
    assert findings(NAMED, CART_V1) == [
        "warning target-port-not-found: spec.ports[0].targetPort: no container of the Pods that the Service selects has "
        "a port named http, so requests get 503; their ports are 8080 (web): write one of them, or name a port of the "
        "container http"
    ]
    assert findings(NAMED, CART_V1.replace("ports: [{name: web, containerPort: 8080}]", "")) == [
        "warning target-port-not-found: spec.ports[0].targetPort: no container of the Pods that the Service selects has "
        "a port named http, so requests get 503; they declare no ports: write the number of the port, or name a port of the "
        "container http"
    ]


def test_a_target_port_that_a_container_has_is_not_reported() -> None:
    second = CART_V1.replace("name: web", "name: http").replace("name: cart,", "name: cart-2,")
    assert findings(NAMED, CART_V1, second) == []
    assert findings(NAMED, CART_V1.replace("name: web", "name: http")) == []
    assert findings(NAMED) == []
