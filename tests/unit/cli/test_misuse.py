"""Messages for mistakes of users: a wrong argument, a file that is not what it should be, or another server.

Each message names the cause and, where it is known, the fix. There is never a traceback.
"""

from __future__ import annotations

import http.server
import pathlib
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module

import pytest

from pilot.cli import pilotctl
from tests.unit.cli.test_pilotctl import serve

VIRTUAL_SERVICE = """apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: tea, namespace: shop}
spec:
  hosts: [tea]
  http:
  - route:
    - destination: {host: tea}
"""
TEA = "networking.istio.io/VirtualService shop/tea"
FILES = {
    "vs.yaml": VIRTUAL_SERVICE,
    "field.yaml": VIRTUAL_SERVICE.replace("  http:", "  htttp:"),
    "nested.yaml": VIRTUAL_SERVICE.replace("host: tea}", "hosst: tea}"),
    "top.yaml": VIRTUAL_SERVICE.replace("spec:", "specs:"),
    "kind.yaml": VIRTUAL_SERVICE.replace("VirtualService", "VirtualSerivce"),
    "group.yaml": VIRTUAL_SERVICE.replace("istio.io", "istio.com"),
    "version.yaml": VIRTUAL_SERVICE.replace("io/v1", "io/v2"),
    "noversion.yaml": VIRTUAL_SERVICE.replace("apiVersion: networking.istio.io/v1\n", ""),
    "nokind.yaml": VIRTUAL_SERVICE.replace("kind: VirtualService\n", ""),
    "noname.yaml": VIRTUAL_SERVICE.replace("name: tea, ", ""),
    "badname.yaml": VIRTUAL_SERVICE.replace("name: tea, ", "name: Tea_1, "),
    "type.yaml": VIRTUAL_SERVICE.replace("hosts: [tea]", "hosts: tea"),
    "repeated.yaml": VIRTUAL_SERVICE.replace("  hosts: [tea]", "  hosts: [tea]\n  hosts: [cup]"),
    "helm.yaml": VIRTUAL_SERVICE.replace("name: tea", "name: {{ .Values.name }}"),
    "tabs.yaml": "kind: VirtualService\nspec:\n\thosts: [a]\n",
    "unclosed.yaml": "kind: [a\n",
    "empty.yaml": "",
    "deployment.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n",
    "volume.yaml": "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\n",
    "containers.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: {name: a}}}}\n",
    "text.yaml": "hello\n",
    "broken.json": '{"kind": ',
    "operator.yaml": "apiVersion: install.istio.io/v1alpha1\nkind: IstioOperator\nspec:\n  profil: demo\n",
    "values.yaml": "pilot: {autoscaleMin: 2}\nglobal: {hub: x}\n",
    "sizes.yaml": "kind: IstioOperator\nspec: {components: {pilot: {k8s: {hpaSpec: {minReplicas: 5, maxReplicas: 2}, service: {type: LoadBalancr}}}}}\n",
    "operater.yaml": "apiVersion: install.istio.io/v1alpha1\nkind: IstioOperater\n",
    "profile.yaml": "apiVersion: install.istio.io/v1alpha1\nkind: IstioOperator\nspec:\n  profile: demoo\n",
    "operator2.yaml": "apiVersion: install.istio.io/v1\nkind: IstioOperator\n",
    "gateways.yaml": "kind: IstioOperator\nspec:\n  components:\n    ingressGateways:\n      name: edge\n      enabled: true\n",
    "request.yaml": "kind: IstioOperator\nspec:\n  components:\n    pilot:\n      k8s:\n        resources:\n          request: {cpu: 1}\n",
    "named-gateways.yaml": "kind: IstioOperator\nspec:\n  components:\n    ingressGateways:\n      edge: {enabled: true}\n",
    "mesh-field.yaml": "kind: IstioOperator\nspec:\n  meshConfig:\n    accessLogfile: /dev/stdout\n",
    "mesh.yaml": "trustDomian: a\n",
    "dump.json": "[]",
    "comment.json": "{\n  // a\n}",
    "map.yaml": "apiVersion: v1\nkind: ConfigMap\ndata: {mesh: ''}\n",
    "key.yaml": "mesh: |\n  trustDomain: a\n",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a}]}\n",
    "web.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: c, user: u}}], users: [{name: u, user: {}}], clusters: [{name: c, cluster: {server: 'http://OTHER'}}]}",
    "plugin.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: c, user: u}}], users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws-iam-authenticatr}}}], clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}",
    "down.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: c, user: u}}], users: [{name: u, user: {}}], clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}",
    "condition.yaml": VIRTUAL_SERVICE.replace("- route:", "- retries: {attempts: 2, retryOn: 5xxx}\n    route:"),
    "brace.yaml": VIRTUAL_SERVICE.replace("[tea]", "[tea").replace("  http:\n", ""),
    "quote.yaml": VIRTUAL_SERVICE.replace("[tea]", "['tea]"),
    "star.yaml": VIRTUAL_SERVICE.replace("[tea]", "[*.example.com]"),
    "list.yaml": "- apiVersion: networking.istio.io/v1\n  kind: VirtualService\n",
    "seconds.yaml": VIRTUAL_SERVICE.replace("- route:", "- timeout: 30\n    route:"),
    "quoted.yaml": VIRTUAL_SERVICE.replace("host: tea}", "host: tea, port: {number: '80'}}"),
    "tls.yaml": "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: a, namespace: shop}\nspec: {servers: [{hosts: ['*'], port: {number: 443, name: a, protocol: HTTPS}, tls: {mode: SIMPLE, privateKey: /k}}]}\n",
    "attribute.yaml": "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: a, namespace: shop}\nspec: {rules: [{when: [{key: 'request.header[x]', values: [a]}, {key: source.namspace, values: [a]}, {key: 'request.auth.claim[a][b]', values: [a]}, {key: request.auth.claims, values: [a]}, {key: path, values: [a]}]}]}\n",
    "jwks.yaml": "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: a, namespace: shop}\nspec: {jwtRules: [{issuer: a, jwks: 'https://a/jwks'}]}\n",
    "weight.yaml": "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a, namespace: shop}\nspec: {rules: [{backendRefs: [{name: tea, port: 80, weight: -1}]}]}\n",
    "inject.config": "templates: {sidecar: '{{ .x '}\n",
    "cluster.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: d, user: u}}], users: [{name: u, user: {}}], clusters: [{name: c, cluster: {}}]}",
    "nouser.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: c, user: admin}}], users: [{name: me, user: {}}], clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}",
    "nousers.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: c, user: admin}}], clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}",
    "nocert.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: c, user: me}}], users: [{name: me, user: {client-certificate: /nope/me.crt}}], clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}",
    "baddata.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: c, user: me}}], users: [{name: me, user: {}}], clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: '-----BEGIN'}}]}",
    "scheme.yaml": "{current-context: w, contexts: [{name: w, context: {cluster: c, user: u}}], users: [{name: u, user: {}}], clusters: [{name: c, cluster: {server: '127.0.0.1:6443'}}]}",
    "metadata.yaml": VIRTUAL_SERVICE.replace("namespace: shop", "namespace: shop, lables: {a: b}"),
    "outside.yaml": VIRTUAL_SERVICE.replace("spec:\n  hosts: [tea]", "hosts: [tea]\nspec:"),
    "indent.yaml": VIRTUAL_SERVICE.replace("  http:", "   http:"),
    "days.yaml": VIRTUAL_SERVICE.replace("- route:", "- timeout: 1d\n    route:"),
    "kustomization.yaml": "resources: [vs.yaml]\n",
    "plain-mesh.yaml": "enableAutoMtls: false\n",
    "many.yaml": VIRTUAL_SERVICE + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n",
    "groups.yaml": "---\n".join(
        f"apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {{name: {name}}}\n" for name in "ab"
    ),
    "joined.yaml": VIRTUAL_SERVICE + VIRTUAL_SERVICE.replace("tea", "cup"),
    "no-group.yaml": "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: r, namespace: shop}\nspec: {parentRefs: [{kind: Service, name: tea}], rules: [{matches: [{method: {service: acme.Tea/Get}}], filters: [{type: RequestRedirect}], backendRefs: [{name: tea, port: 80}]}]}\n",
    "filter.yaml": "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: t, namespace: shop}\nspec: {accessLogging: [{providers: [{name: envoy}], filter: {expression: 'response.code => 400'}}]}\n",
    "old-config.yaml": "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: f, namespace: shop}\nspec: {configPatches: [{applyTo: HTTP_FILTER, patch: {operation: ADD, value: {name: envoy.filters.http.lua, config: {inlineCode: x}}}}]}\n",
    "entry-port.yaml": "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w, namespace: shop}\nspec: {address: '10.1.2.3:8080'}\n",
    "url.yaml": "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: shop}\nspec: {hosts: ['https://api.example.com'], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}\n",
    "closed.yaml": "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r, namespace: shop}\nspec: {parentRefs: [{name: gw, namespace: infra}], rules: [{backendRefs: []}]}\n",
    "authz-mesh.yaml": "trustDomain: a\nextensionProviders:\n- name: oauth2\n  envoyExtAuthzHttp: {service: oauth.shop.svc.cluster.local}\n",
    "templates/a.tmpl": "x",
    "none/README": "x",
}

# The command, its exit status, and its message. OTHER is an HTTP server that is not a control plane, and GRPC is a port
# that does not speak HTTP/1.1.
MISTAKES = [
    (
        "pilotctl --address OTHER problems",
        1,
        "http://OTHER is not the monitoring port of pilot-discovery: its response to /debug/problemz (status 200) lacks the header X-Pilot-Version of 1.0.0rc2 and later; --address takes the address of --monitoringAddr, port 15014 by default",
    ),
    (
        "pilotctl --address OTHER proxy-status",
        1,
        "http://OTHER is not the monitoring port of pilot-discovery: its response to /debug/syncz (status 200) lacks the header X-Pilot-Version of 1.0.0rc2 and later; --address takes the address of --monitoringAddr, port 15014 by default",
    ),
    (
        "pilotctl --address GRPC problems",
        1,
        "cannot reach http://GRPC: the server there does not speak HTTP/1.1, so it may be a gRPC or TLS port. Is pilot-discovery running there? --address sets its monitoring address, port 15014 by default",
    ),
    (
        "pilotctl --address :1 problems",
        1,
        "cannot reach http://127.0.0.1:1: connection refused. Is pilot-discovery running there? --address sets its monitoring address, port 15014 by default",
    ),
    (
        "pilotctl problems --address 1",
        1,
        "cannot reach http://127.0.0.1:1: connection refused. Is pilot-discovery running there? --address sets its monitoring address, port 15014 by default",
    ),
    (
        "pilotctl --address 127.0.0.1:x problems",
        2,
        "Invalid value for '--address': invalid address '127.0.0.1:x': use HOST:PORT or http://HOST:PORT",
    ),
    (
        "pilotctl --address ftp://127.0.0.1 problems",
        2,
        "Invalid value for '--address': invalid address 'ftp://127.0.0.1': the scheme is 'ftp', use http or https",
    ),
    (
        "pilotctl --address http://[nonsense problems",
        2,
        "Invalid value for '--address': invalid address 'http://[nonsense': use HOST:PORT or http://HOST:PORT",
    ),
    (
        "pilotctl --address https://OTHER problems",
        1,
        "cannot reach https://OTHER: the TLS handshake failed (WRONG_VERSION_NUMBER); try http:// instead of https://. Is pilot-discovery running there? --address sets its monitoring address, port 15014 by default",
    ),
    (
        "pilotctl --address http://127.0.0.1:1?x problems",
        2,
        "Invalid value for '--address': invalid address 'http://127.0.0.1:1?x': it must not contain ? or #",
    ),
    (
        "pilotctl --address ::1:22014 problems",
        2,
        "Invalid value for '--address': invalid address '::1:22014': write IPv6 addresses in brackets: [::1]:22014",
    ),
    (
        "pilotctl --address http://::1:22014 problems",
        2,
        "Invalid value for '--address': invalid address 'http://::1:22014': write IPv6 addresses in brackets: [::1]:22014",
    ),
    (
        "pilotctl --address :99999 problems",
        2,
        "Invalid value for '--address': invalid address ':99999': ports end at 65535",
    ),
    (
        "pilotctl --address http://127.0.0.1:1/debug problems",
        2,
        "Invalid value for '--address': invalid address 'http://127.0.0.1:1/debug': it must not contain the path of a page; use http://127.0.0.1:1",
    ),
    (
        "pilotctl --address http://u:p@127.0.0.1:1 problems",
        2,
        "Invalid value for '--address': invalid address: it must not contain a user name or password; use http://127.0.0.1:1",
    ),
    ("pilotctl problms", 2, "No such command 'problms'; did you mean problems?"),
    (
        "pilotctl x describe",
        2,
        "No such command 'x'; commands of istioctl experimental are top-level commands here: pilotctl --help lists them",
    ),
    (
        "pilotctl revision list",
        2,
        "No such command 'revision'; use pilotctl tag",
    ),
    (
        "pilotctl validate -f https://example.com/vs.yaml",
        1,
        "cannot read https://example.com/vs.yaml: it is a URL; download it first, for example with curl -O https://example.com/vs.yaml",
    ),
    (
        "pilotctl proxy-status --xds-address localhost:15010",
        2,
        "No such option '--xds-address'; pilotctl reads the monitoring port: --address HOST:15014",
    ),
    (
        "pilotctl --xds-address localhost:15010 version",
        2,
        "No such option '--xds-address'; pilotctl reads the monitoring port: --address HOST:15014",
    ),
    (
        "pilotctl version --xds-label a=b",
        2,
        "No such option '--xds-label'; pilotctl finds the replicas in the cluster: -i NAMESPACE and --revision NAME select them",
    ),
    (
        "pilotctl version --plaintext",
        2,
        "No such option '--plaintext'; pilotctl uses no TLS: it reads the monitoring port, which --address HOST:15014 names if there is no cluster",
    ),
    (
        "pilotctl version --vklog 3",
        2,
        "No such option '--vklog'; pilotctl writes no log; pilotctl admin log --level SCOPE:LEVEL sets the levels of the control plane",
    ),
    (
        "pilotctl version --timeout 5s",
        2,
        "No such option '--timeout'; pilotctl --kubeclient-timeout DURATION COMMAND sets the timeout of requests to API servers",
    ),
    (
        "pilotctl version -r canary",
        2,
        "No such option '-r'; use --revision NAME",
    ),
    (
        "pilotctl dashboard controlz",
        1,
        "dashboards forward Pods of a cluster, and there is no kubeconfig (--kubeconfig, KUBECONFIG); for a control plane on this machine, open http://127.0.0.1:9876",
    ),
    (
        "pilotctl dashboard istiod-debug",
        1,
        "dashboards forward Pods of a cluster, and there is no kubeconfig (--kubeconfig, KUBECONFIG); for a control plane on this machine, open http://127.0.0.1:15014/debug",
    ),
    (
        "pilotctl dashboard envoy tea.shop",
        1,
        "dashboards forward Pods of a cluster, and there is no kubeconfig (--kubeconfig, KUBECONFIG); for a proxy on this machine, open http://127.0.0.1:15000",
    ),
    (
        "pilotctl dashboard grafana",
        1,
        "dashboards forward Pods of a cluster, and there is no kubeconfig (--kubeconfig, KUBECONFIG)",
    ),
    (
        "pilotctl tag set prod",
        2,
        "Missing option '-r' / '--revision'; as in --revision 1-24-1; kubectl get deployment -n istio-system -l app=istiod -L istio.io/rev lists the revisions, and pilotctl tag list the tags",
    ),
    (
        "pilotctl history virtualservice/reviews",
        2,
        "Got unexpected extra argument (virtualservice/reviews); pilotctl history takes no arguments; -n NAMESPACE sets the namespace; pilotctl rollout status KIND/NAME -n NAMESPACE shows the delivery of one object",
    ),
    (
        "pilotctl analyze --recursive vs.yaml",
        2,
        "No such option '--recursive'; directories are always read recursively",
    ),
    (
        "pilotctl analyze --remote-contexts west vs.yaml",
        2,
        "--remote-contexts compares the Services of clusters: omit FILES",
    ),
    (
        "pilotctl analyze --analyzer gateway.ConflictingGatewayAnalyser vs.yaml",
        2,
        "--analyzer 'gateway.ConflictingGatewayAnalyser': no such analyzer; did you mean gateway.ConflictingGatewayAnalyzer?",
    ),
    (
        "pilotctl describe deployment web-0 -n shop",
        2,
        "describe takes one proxy, POD.NAMESPACE or part of it: pilotctl describe web-0",
    ),
    ("pilotctl proxy-status --watch -o json", 2, "--watch shows a table: omit --output"),
    (
        "pilotctl explain web http.80 --type routes",
        2,
        "Invalid value for '-t' / '--type': 'routes' is not one of 'cds', 'eds', 'lds', 'rds', 'sds', 'wds', 'wads', 'ecds', 'nds', 'pcds', 'bds'.",
    ),
    (
        "pilotctl kube-inject -f containers.yaml",
        1,
        "Deployment a: spec.template.spec.containers: expected a list, got a mapping",
    ),
    ("pilotctl proxy-config clusters", 2, "specify PROXY, --envoy URL or --file FILE"),
    (
        "pilotctl proxy-config clusters --envoy GRPC",
        1,
        "cannot reach the Envoy at http://GRPC: the server there does not speak HTTP/1.1, so it may be a gRPC or TLS port",
    ),
    (
        "pilotctl proxy-config clusters --envoy OTHER",
        1,
        "the response of OTHER is not a config_dump: it has no list named configs; --envoy takes Envoy's admin address, port 15000 by default",
    ),
    (
        "pilotctl proxy-config clusters --envoy :1",
        1,
        "cannot reach the Envoy at http://127.0.0.1:1: connection refused",
    ),
    (
        "pilotctl proxy-config clusters --file dump.json",
        1,
        "dump.json is not a config_dump: it has no list named configs; save one with: kubectl exec POD -c istio-proxy -- pilot-agent request GET 'config_dump?include_eds' >FILE",
    ),
    (
        "pilotctl proxy-config clusters --file broken.json",
        1,
        "broken.json is not JSON: Expecting value: line 1 column 10 (char 9); save one with: kubectl exec POD -c istio-proxy -- pilot-agent request GET 'config_dump?include_eds' >FILE",
    ),
    (
        "pilotctl ztunnel-config workload --file vs.yaml",
        1,
        "vs.yaml is not a config_dump of ztunnel: it is not JSON, but YAML or another text; save one with: kubectl port-forward POD 15000 & curl -s localhost:15000/config_dump >FILE",
    ),
    (
        "pilotctl workload entry configure -f many.yaml -o out --clusterID x",
        1,
        "many.yaml contains no WorkloadGroup, but VirtualService, Deployment",
    ),
    (
        "pilotctl workload entry configure -f groups.yaml -o out --clusterID x",
        1,
        "groups.yaml contains 2 objects of the kind WorkloadGroup, expected one: a, b",
    ),
    (
        "pilotctl workload entry configure -f tabs.yaml -o out --clusterID x",
        1,
        "tabs.yaml:3: while scanning for the next token found character that cannot start any token; YAML does not permit tabs for indentation: replace them by spaces",
    ),
    ("pilotctl proxy-config clusters --file dump.json --envoy OTHER", 2, "--envoy and --file are mutually exclusive"),
    ("pilotctl proxy-config bootstrap", 2, "specify PROXY, --envoy URL or --file FILE"),
    (
        "pilotctl proxy-config log --envoy OTHER --level loud",
        1,
        "--level 'loud': invalid level 'loud'; valid levels are trace, debug, info, warning, error, critical, off",
    ),
    ("pilotctl analyze vs.yml", 1, "cannot read vs.yml: No such file or directory; did you mean vs.yaml?"),
    ("pilotctl analyze nowhere.yaml", 1, "cannot read nowhere.yaml: No such file or directory"),
    ("pilotctl analyze empty.yaml", 1, "nothing was checked: empty.yaml is empty"),
    (
        "pilotctl analyze templates",
        1,
        "templates contains no .yaml or .yml or .json files, so nothing was read; it contains 1 .tmpl file: render templates first, for example with `helm template`",
    ),
    (
        "pilotctl analyze none",
        1,
        "none contains no .yaml or .yml or .json files, so nothing was read; it contains 1 other file",
    ),
    (
        "pilotctl analyze volume.yaml",
        1,
        "nothing was checked: found 1 object in 1 file, and none of a kind that a mesh uses",
    ),
    ("pilotctl analyze vs.yaml -n calm", 1, "no object is in the namespace 'calm'; namespaces of the objects: shop"),
    (
        "pilotctl analyze vs.yaml --meshConfigFile tabs.yaml",
        1,
        "tabs.yaml:3: while scanning for the next token found character that cannot start any token; YAML does not permit tabs for indentation: replace them by spaces",
    ),
    (
        "pilotctl validate -f empty.yaml",
        1,
        "nothing was validated, because there are no objects of kinds that a mesh uses",
    ),
    (
        "pilotctl validate -f field.yaml",
        1,
        '"field.yaml" is not valid:\n  * line 6: networking.istio.io/VirtualService shop/tea spec.htttp: unknown field; did you mean http?',
    ),
    (
        "pilotctl validate -f nested.yaml",
        1,
        '"nested.yaml" is not valid:\n  * line 8: networking.istio.io/VirtualService shop/tea spec.http[0].route[0].destination.hosst: unknown field; did you mean host?',
    ),
    (
        "pilotctl validate -f top.yaml",
        1,
        '"top.yaml" is not valid:\n  * line 4: networking.istio.io/VirtualService shop/tea specs: unknown field; did you mean spec?',
    ),
    (
        "pilotctl validate -f kind.yaml",
        1,
        '"kind.yaml" is not valid:\n  * line 2: networking.istio.io/VirtualSerivce shop/tea kind: networking.istio.io/v1 VirtualSerivce is not a supported kind and has no effect; did you mean VirtualService?',
    ),
    (
        "pilotctl validate -f group.yaml",
        1,
        '"group.yaml" is not valid:\n  * line 1: networking.istio.com/VirtualService shop/tea apiVersion: networking.istio.com/v1 VirtualService is not a supported kind and has no effect; did you mean networking.istio.io?',
    ),
    (
        "pilotctl validate -f version.yaml",
        1,
        '"version.yaml" is not valid:\n  * line 1: networking.istio.io/VirtualService shop/tea apiVersion: networking.istio.io/VirtualService is supported in v1, v1beta1, v1alpha3, not v2',
    ),
    (
        "pilotctl validate -f noversion.yaml",
        1,
        '"noversion.yaml" is not valid:\n  * line 1: apiVersion: expected a string, got nothing',
    ),
    (
        "pilotctl validate -f noname.yaml",
        1,
        '"noname.yaml" is not valid:\n  * line 3: networking.istio.io/VirtualService shop/ metadata.name: a name is required',
    ),
    (
        "pilotctl validate -f badname.yaml",
        1,
        "\"badname.yaml\" is not valid:\n  * line 3: networking.istio.io/VirtualService shop/Tea_1 metadata.name: 'Tea_1': must be at most 253 lower-case letters, digits, - and .",
    ),
    (
        "pilotctl validate -f type.yaml",
        1,
        '"type.yaml" is not valid:\n  * line 5: networking.istio.io/VirtualService shop/tea spec.hosts: expected a list, got a string: write [tea]',
    ),
    (
        "pilotctl validate -f metadata.yaml",
        1,
        '"metadata.yaml" is not valid:\n  * line 3: networking.istio.io/VirtualService shop/tea metadata.lables: unknown field; did you mean labels?',
    ),
    (
        "pilotctl validate -f outside.yaml",
        1,
        '"outside.yaml" is not valid:\n  * line 4: networking.istio.io/VirtualService shop/tea hosts: unknown field; did you mean spec.hosts? Check the indentation',
    ),
    (
        "pilotctl validate -f indent.yaml",
        1,
        '"indent.yaml" is not valid:\n  * line 6: while parsing a block mapping did not find expected key; check the indentation of this line and of the lines above',
    ),
    (
        "pilotctl validate -f days.yaml",
        1,
        "\"days.yaml\" is not valid:\n  * line 7: networking.istio.io/VirtualService shop/tea spec.http[0].timeout: invalid duration '1d': use units h, m, s and ms without spaces, such as 1.5s or 1h30m",
    ),
    (
        "pilotctl validate -f kustomization.yaml",
        1,
        '"kustomization.yaml" is not valid:\n  * line 1: apiVersion: this looks like a Kustomize file: render it first, for example with `kubectl kustomize`',
    ),
    (
        "pilotctl validate -f plain-mesh.yaml",
        1,
        '"plain-mesh.yaml" is not valid:\n  * line 1: apiVersion: this looks like a mesh config: pass it with --meshConfig, or to `pilotctl analyze` with --meshConfigFile',
    ),
    (
        "pilotctl validate -f repeated.yaml",
        1,
        "\"repeated.yaml\" is not valid:\n  * line 6: networking.istio.io/VirtualService shop/tea: 'hosts' occurs twice in one mapping; the last value wins",
    ),
    (
        "pilotctl kube-inject -f pod.yaml --operatorFileName values.yaml",
        1,
        "values.yaml: no kind: IstioOperator; Helm values belong below spec.values: global, pilot",
    ),
    (
        "pilotctl validate -f joined.yaml",
        1,
        "\"joined.yaml\" is not valid:\n  * line 9: networking.istio.io/VirtualService shop/cup: 'apiVersion' occurs twice in one mapping; the last value wins: is a line --- missing before line 9?",
    ),
    (
        "pilotctl validate -f helm.yaml",
        1,
        '"helm.yaml" is not valid:\n  * line 3: a key must be a scalar; this looks like a Helm template: render it first, for example with `helm template`',
    ),
    (
        "pilotctl validate -f tabs.yaml",
        1,
        '"tabs.yaml" is not valid:\n  * line 3: while scanning for the next token found character that cannot start any token; YAML does not permit tabs for indentation: replace them by spaces',
    ),
    (
        "pilotctl validate -f unclosed.yaml",
        1,
        "\"unclosed.yaml\" is not valid:\n  * line 2: while parsing a flow sequence did not find expected ',' or ']'; close every { and [, and quote texts that contain { } [ ] or ,",
    ),
    (
        "pilotctl validate -f text.yaml",
        1,
        '"text.yaml" is not valid:\n  * line 1: expected an object with apiVersion, kind and metadata',
    ),
    ("pilotctl validate -f broken.json", 1, '"broken.json" is not valid:\n  * Input data was truncated'),
    (
        "pilotctl validate -f comment.json",
        1,
        '"comment.json" is not valid:\n  * line 2: JSON does not permit comments',
    ),
    (
        "pilotctl kube-inject -f pod.yaml --meshConfigFile map.yaml",
        1,
        "mesh config: kind: this is a ConfigMap, not a mesh config: use the content of its key mesh",
    ),
    (
        "pilotctl kube-inject -f pod.yaml --meshConfigFile vs.yaml",
        1,
        "mesh config: kind: this is a VirtualService, not a mesh config, whose fields are at the top level, such as trustDomain: cluster.local; put objects into the folder of --configDir",
    ),
    (
        "pilotctl kube-inject -f pod.yaml --meshConfigFile key.yaml",
        1,
        "mesh config: mesh: this is not a mesh config: use the content of the key mesh",
    ),
    (
        "pilotctl kube-inject -f pod.yaml --injectConfigFile vs.yaml",
        1,
        "vs.yaml has no templates; use the key config of the ConfigMap istio-sidecar-injector",
    ),
    ("pilotctl translate -o vs.yaml/x", 1, "cannot write vs.yaml/x: Not a directory"),
    ("pilotctl kube-inject -f nowhere.yaml", 1, "cannot read nowhere.yaml: No such file or directory"),
    (
        "pilotctl kube-inject -f tabs.yaml",
        1,
        "tabs.yaml:3: while scanning for the next token found character that cannot start any token; YAML does not permit tabs for indentation: replace them by spaces",
    ),
    ("pilotctl authz check web --header x", 2, "Invalid value for '--header': 'x': expected NAME=VALUE"),
    (
        "pilotctl authz check web --path foo",
        2,
        "Invalid value for '--path': 'foo': expected a path that begins with / and contains no spaces, such as /a%20b",
    ),
    (
        "pilotctl authz check web --path http://a/x",
        2,
        "Invalid value for '--path': 'http://a/x': expected a path that begins with / and contains no spaces, such as /a%20b",
    ),
    (
        "pilotctl authz check web --host http://a",
        2,
        "Invalid value for '--host': 'http://a': expected NAME or NAME:PORT",
    ),
    (
        "pilotctl authz check web --from-principal storefront",
        2,
        "Invalid value for '--from-principal': 'storefront': expected NAMESPACE/ACCOUNT, DOMAIN/ns/NAMESPACE/sa/ACCOUNT, or a whole SPIFFE ID: spiffe://DOMAIN/PATH",
    ),
    ("pilotctl authz check web --tcp --method GET", 2, "--tcp and --method are mutually exclusive"),
    ("pilotctl describe ''", 2, "Invalid value for 'PROXY': it is empty; use POD.NAMESPACE or part of it"),
    ("pilotctl proxy-status ''", 2, "Invalid value for 'PROXY': it is empty; use POD.NAMESPACE or part of it"),
    ("pilotctl proxy-config clusters ''", 2, "Invalid value for 'PROXY': it is empty; use POD.NAMESPACE or part of it"),
    ("pilotctl authz check web --claim a=[", 1, "--claim: '[' is not JSON: Expecting value: line 1 column 2 (char 1)"),
    (
        "pilotctl manifest generate --component Nosuch",
        1,
        "--component 'Nosuch': unknown component; valid components are Base, Pilot, IngressGateways, EgressGateways, Cni, Ztunnel",
    ),
    (
        "pilotctl manifest generate --component pilt",
        1,
        "--component 'pilt': unknown component; did you mean Pilot?; valid components are Base, Pilot, IngressGateways, EgressGateways, Cni, Ztunnel",
    ),
    (
        "pilotctl manifest generate --component EgressGateways",
        1,
        "--component EgressGateways: this installation does not enable it; enable it in spec.components.egressGateways",
    ),
    ("pilotctl manifest generate --set meshConfig.noSuch=1", 1, "spec.meshConfig.noSuch: unknown field"),
    (
        "pilotctl manifest generate --set meshConfig.accessLogFil=x",
        1,
        "spec.meshConfig.accessLogFil: unknown field; did you mean accessLogFile?",
    ),
    (
        "pilotctl manifest generate --set profile=demoo",
        1,
        "spec.profile: unknown profile demoo; did you mean demo?; available: ambient, default, demo, empty, minimal, openshift, openshift-ambient, preview, remote, stable",
    ),
    (
        "pilotctl manifest generate --set components.egressGateways[7].enabled=true",
        1,
        "--set components.egressGateways[7].enabled=true: [7] is not an item: the list has 0 here, so use [0] for a new one",
    ),
    ("pilotctl manifest generate --set values", 1, '--set values: expected "path=value"'),
    (
        "pilotctl manifest generate --set values.pilot.autoscaleMinn=2",
        1,
        "spec.values.pilot.autoscaleMinn: unknown field autoscaleMinn; did you mean autoscaleMin?",
    ),
    (
        "pilotctl manifest generate -f values.yaml",
        1,
        "values.yaml: no kind: IstioOperator; Helm values belong below spec.values: global, pilot",
    ),
    (
        "pilotctl manifest generate -f sizes.yaml",
        1,
        "sizes.yaml:2: spec.components.pilot.k8s.service.type: LoadBalancr is not one of ClusterIP, NodePort, LoadBalancer, ExternalName; did you mean LoadBalancer?; sizes.yaml:2: spec.components.pilot.k8s.hpaSpec.minReplicas: 5 is more than maxReplicas, 2",
    ),
    (
        "pilotctl manifest generate --set values.global.imagePullPolicy=always",
        1,
        "spec.values.global.imagePullPolicy: always is not one of Always, IfNotPresent, Never; did you mean Always?",
    ),
    (
        "pilotctl manifest generate -f operator.yaml",
        1,
        "operator.yaml:4: spec.profil: unknown field profil; did you mean profile?",
    ),
    (
        "pilotctl manifest generate -f operater.yaml",
        1,
        "operater.yaml: kind: IstioOperater is not supported; expected IstioOperator",
    ),
    (
        "pilotctl manifest generate -f operator2.yaml",
        1,
        "operator2.yaml: apiVersion: install.istio.io/v1 is not supported; expected install.istio.io/v1alpha1",
    ),
    (
        "pilotctl operator dump --watchedNamespaces 'a, B_'",
        2,
        "Invalid value for '--watchedNamespaces': 'B_': expected the name of a namespace: at most 63 lower-case letters, digits and hyphens",
    ),
    (
        "pilotctl manifest generate --profile demo",
        2,
        "No such option '--profile'; use --set profile=NAME",
    ),
    ("pilotctl manifest generate -f nowhere.yaml", 1, "cannot read nowhere.yaml: No such file or directory"),
    (
        "pilotctl manifest generate -d nowhere",
        1,
        "folder nowhere/profiles does not exist; charts and profiles are expected in its parent",
    ),
    ("pilotctl manifest diff empty.yaml vs.yaml", 1, "empty.yaml contains no objects"),
    (
        "pilotctl profile dump demoo",
        1,
        "spec.profile: unknown profile demoo; did you mean demo?; available: ambient, default, demo, empty, minimal, openshift, openshift-ambient, preview, remote, stable",
    ),
    (
        "pilotctl profile dump default -p components.pilto",
        1,
        "the path components.pilto has no value; did you mean pilot?",
    ),
    ("pilotctl proxy-config clusters --file latin.json", 1, "cannot read latin.json: not a text in UTF-8"),
    ("pilotctl kube-inject -f latin.json", 1, "cannot read latin.json: not a text in UTF-8"),
    ("pilotctl manifest generate -f latin.json", 1, "cannot read latin.json: not a text in UTF-8"),
    ("pilotctl validate -f latin.yaml", 1, '"latin.yaml" is not valid:\n  * line 1: not a text in UTF-8'),
    ("pilotctl profile dump default -p components.nosuch", 1, "the path components.nosuch has no value"),
    (
        "pilotctl install --readiness-timeout soon -c nowhere",
        2,
        "Invalid value for '--readiness-timeout': invalid duration 'soon': use a number with a unit, such as 300s or 5m",
    ),
    ("pilotctl uninstall -c nowhere", 1, "specify --revision NAME, -f FILE, or --purge for everything"),
    (
        "pilotctl tag list -c nowhere",
        1,
        "kubeconfig nowhere: no such file; set --kubeconfig or KUBECONFIG to a file",
    ),
    (
        "pilotctl tag list -c templates",
        1,
        "kubeconfig templates: a folder, not a file; set --kubeconfig or KUBECONFIG to a file",
    ),
    (
        "pilotctl tag list -c plugin.yaml",
        1,
        "kubeconfig plugin.yaml: exec plugin: aws-iam-authenticatr: No such file or directory",
    ),
    (
        "pilotctl tag list -c text.yaml",
        1,
        "kubeconfig text.yaml: not a kubeconfig: expected a mapping with a list of contexts",
    ),
    (
        "pilotctl tag list -c web.yaml --context prod",
        1,
        "kubeconfig web.yaml: no context 'prod'; contexts are: w",
    ),
    (
        "pilotctl tag list -c web.yaml",
        1,
        "/apis/admissionregistration.k8s.io/v1: the response is no list of kinds, so it is not from a Kubernetes API server",
    ),
    (
        "pilotctl tag list -c down.yaml",
        1,
        "cannot connect to the API server 127.0.0.1:1: Connection refused",
    ),
    (
        "pilotctl proxy-config log --envoy OTHER --level htp:debug",
        1,
        "the Envoy at http://OTHER rejected /logging: error: unknown logger name",
    ),
    ("pilotctl proxy-config log --envoy OTHER --level http=debug", 1, "--level 'http=debug': use 'http:debug'"),
    (
        "pilotctl proxy-config endpoints --envoy OTHER --status UP",
        2,
        "Invalid value for '--status': 'UP' is not one of 'healthy', 'unhealthy', 'draining', 'timeout', 'degraded'.",
    ),
    (
        "pilotctl --address :1,:2 problems",
        2,
        "Invalid value for '--address': invalid address ':1,:2': repeat --address, or separate addresses in PILOTCTL_ADDRESS by spaces",
    ),
    (
        "pilotctl wait --timeout 3 virtualservice/a",
        2,
        "Invalid value for '--timeout': invalid duration '3'; did you mean 3s?",
    ),
    *(
        (f"pilotctl validate -f {name}.yaml", 1, f'"{name}.yaml" is not valid:\n  * line {line}: {message}')
        for name, line, message in (
            ("condition", 7, f"{TEA} spec.http[0].retries.retryOn: unknown retry condition '5xxx'; did you mean 5xx?"),
            (
                *("brace", 6),
                "while parsing a flow sequence did not find expected ',' or ']'; close every { and [, and quote texts that "
                "contain { } [ ] or ,",
            ),
            ("quote", 9, "while scanning a quoted scalar found unexpected end of stream; a quote is not closed"),
            (
                "star",
                5,
                "while scanning an alias did not find expected alphabetic or numeric character; quote texts that begin with *",
            ),
            (
                *("list", 1),
                "expected an object with apiVersion, kind and metadata; write objects as documents that --- separates, "
                "without -",
            ),
            (
                *("seconds", 7),
                f"{TEA} spec.http[0].timeout: expected a duration like 1.5s, got an integer (30): write 30s for seconds",
            ),
            (
                *("quoted", 8),
                f"{TEA} spec.http[0].route[0].destination.port.number: expected an integer, got a string: remove the quotes",
            ),
            (
                *("tls", 4),
                "networking.istio.io/Gateway shop/a spec.servers[0].tls.serverCertificate: SIMPLE requires a server "
                "certificate; to use a Secret, set credentialName",
            ),
            (
                *("jwks", 4),
                "security.istio.io/RequestAuthentication shop/a spec.jwtRules[0].jwks: expected a JSON Web Key Set: "
                '{"keys": [...]}; use jwksUri for its URL',
            ),
            (
                *("weight", 4),
                "gateway.networking.k8s.io/HTTPRoute shop/a spec.rules[0].backendRefs[0].weight: -1 is negative",
            ),
        )
    ),
    (
        "pilotctl kube-inject -f pod.yaml --injectConfigFile inject.config",
        1,
        "inject.config: template 'sidecar': template: inject:1: unclosed action",
    ),
    (
        "pilotctl waypoint generate --name My_waypoint",
        2,
        "Invalid value for '--name': 'My_waypoint': expected the name of an object: at most 253 lower-case letters, digits, hyphens and dots",
    ),
    (
        "pilotctl create-remote-secret --server 203.0.113.9:6443",
        2,
        "Invalid value for '--server': '203.0.113.9:6443': expected a URL, such as https://203.0.113.9:6443",
    ),
    (
        "pilotctl waypoint generate -n Shop_1",
        2,
        "Invalid value for '-n' / '--namespace': 'Shop_1': expected the name of a namespace: at most 63 lower-case letters, digits and hyphens",
    ),
    (
        "pilotctl manifest generate --set values.global.proxy.logLevel=verbose",
        1,
        "spec.values.global.proxy.logLevel: verbose is not one of trace, debug, info, warning, warn, error, critical, off",
    ),
    (
        "pilotctl get virtualservices",
        2,
        "No such command 'get'; kubectl get shows the objects of a cluster, and pilotctl internal-debug configz those in force",
    ),
    (
        "pilotctl manifest generate --set values.global.platform=opnshift",
        1,
        "spec.values.global.platform: unknown platform opnshift: use one of gke, k3d, k3s, microk8s, minikube, openshift; "
        "did you mean openshift?",
    ),
    (
        "pilotctl manifest generate --set values.pilot.resources.requests.cpu=lots",
        1,
        "spec.values.pilot.resources.requests[cpu]: 'lots' is not a quantity; write 500m (CPU) or 512Mi (memory)",
    ),
    (
        "pilotctl tag list -c cluster.yaml",
        1,
        "kubeconfig cluster.yaml: the context 'w' names the cluster 'd', which is not in the list clusters; known: c",
    ),
    (
        "pilotctl tag list -c scheme.yaml",
        1,
        "the server of the kubeconfig is '127.0.0.1:6443'; it must begin with https:// or http://",
    ),
    (
        "pilotctl tag list -c unclosed.yaml",
        1,
        "kubeconfig unclosed.yaml: not valid YAML, line 2: expected ',' or ']', but got '<stream end>'",
    ),
    (
        "pilotctl wait -f nested.yaml",
        1,
        "nested.yaml:8: networking.istio.io/VirtualService shop/tea spec.http[0].route[0].destination.hosst: unknown field; did you mean host?",
    ),
    (
        "pilotctl admin log --level ads:debug --controlz OTHER",
        1,
        "http://OTHER is not ControlZ: it does not list log scopes; --controlz sets its address",
    ),
    ("pilotctl admin log --level ads=debug", 2, "--level 'ads=debug': use 'ads:debug'"),
    (
        "pilotctl admin log --controlz OTHER",
        1,
        "http://OTHER is not ControlZ: it does not list log scopes; --controlz sets its address",
    ),
    (
        "pilotctl admin log --controlz :1",
        1,
        "cannot reach http://127.0.0.1:1: connection refused; ControlZ accepts local connections only; --controlz sets its address",
    ),
    (
        "pilotctl bug-report --address :1",
        1,
        "cannot reach http://127.0.0.1:1: connection refused. Is pilot-discovery running there? --address sets its monitoring address, port 15014 by default",
    ),
    (
        "pilotctl describe web --address OTHER",
        1,
        "http://OTHER is not the monitoring port of pilot-discovery: its response to /debug/describe (status 200) lacks the header X-Pilot-Version of 1.0.0rc2 and later; --address takes the address of --monitoringAddr, port 15014 by default",
    ),
    (
        "pilot-discovery discovry",
        1,
        "unknown command 'discovry' for pilot-discovery; did you mean discovery? pilot-discovery --help lists the commands",
    ),
    (
        "pilot-discovery --configDir=.",
        1,
        "unknown command '--configDir=.' for pilot-discovery; flags follow the command: pilot-discovery discovery --configDir=.",
    ),
    (
        "pilot-discovery request GET",
        1,
        "request takes METHOD PATH [BODY], for example: pilot-discovery request GET debug/syncz",
    ),
    (
        "pilot-discovery discovery extra",
        1,
        "unexpected argument 'extra'; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --ctrlz_port=x",
        1,
        "invalid argument for --ctrlz_port: 'x' is not an integer; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --keepaliveInterval=5",
        1,
        "invalid argument for --keepaliveInterval: invalid duration '5'; did you mean 5s?; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --log_output_level=loud",
        1,
        "--log_output_level: 'loud' is not a log level; levels are debug, info, warn, error, fatal, none; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --log_output_level=ads=debug",
        1,
        "--log_output_level: 'ads=debug': use 'ads:debug'; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-agent proxy --log_output_level=sds:debg",
        1,
        "--log_output_level: sds: 'debg' is not a log level; did you mean debug?; levels are debug, info, warn, error, fatal, none; pilot-agent proxy --help shows its usage",
    ),
    (
        "pilot-discovery discovery --log_target=nowhere/log",
        1,
        "--log_target: cannot log to 'nowhere/log': No such file or directory; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilotctl validate -f attribute.yaml",
        1,
        '"attribute.yaml" is not valid:\n'
        + "\n".join(
            f"  * line 4: security.istio.io/AuthorizationPolicy shop/a spec.rules[0].when[{index}].key: {text}"
            for index, text in enumerate(
                (
                    "'request.header[x]' is not a known attribute; did you mean request.headers[x]?",
                    "'source.namspace' is not a known attribute; did you mean source.namespace?",
                    "'request.auth.claim[a][b]' is not a known attribute; did you mean request.auth.claims[a][b]?",
                    "'request.auth.claims': expected a name in brackets, as in request.auth.claims[NAME]",
                    "'path' is not a known attribute; attributes are source.ip, remote.ip, source.namespace, source.serviceAccount, source.principal, source.trustDomain, request.auth.principal, request.auth.audiences, request.auth.presenter, destination.ip, destination.port, connection.sni, request.headers[NAME], request.auth.claims[NAME]",
                )
            )
        ),
    ),
    (
        "pilot-agent proxi",
        1,
        "unknown command 'proxi' for pilot-agent; did you mean proxy? pilot-agent --help lists the commands",
    ),
    (
        "pilot-discovery discovery --grpcAddr=::1:22999",
        1,
        "invalid argument for --grpcAddr: '::1:22999' is not host:port or :port; did you mean [::1]:22999?; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --grpcAddr=:99999",
        1,
        "invalid argument for --grpcAddr: ':99999' is not host:port or :port; ports end at 65535; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --httpAddr https://localhost:8080",
        1,
        "invalid argument for --httpAddr: 'https://localhost:8080' is not host:port or :port; write localhost:8080; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --grpcAddr localhost",
        1,
        "invalid argument for --grpcAddr: 'localhost' is not host:port or :port; append the port, as in localhost:15010; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --log_as_json yes",
        1,
        "unexpected argument 'yes'; the value of --log_as_json follows =, as in --log_as_json=true; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-discovery discovery --shutdownDuration=-5s",
        1,
        "invalid argument for --shutdownDuration: '-5s' is negative; pilot-discovery discovery --help shows its usage",
    ),
    (
        "pilot-agent request stats GET",
        1,
        "request takes METHOD PATH; did you mean request GET stats?",
    ),
    (
        "pilot-agent request GET stats --debug-port 150000",
        1,
        "request: --debug-port: '150000' is not a port from 1 to 65535",
    ),
    ("pilot-agent wait --timeoutSeconds soon", 1, "wait: --timeoutSeconds: 'soon' is not an integer"),
    ("pilot-agent wait --url ftp://x", 1, "--url: invalid address 'ftp://x': the scheme is 'ftp', use http or https"),
    ("pilot-agent request GET", 1, "request takes METHOD PATH [--debug-port PORT]"),
    (
        "pilot-agent request GET stats --debug-port 1",
        1,
        "GET http://localhost:1/stats: connection refused; Envoy's admin port is only open in the Pod of the proxy, for example after kubectl exec -c istio-proxy, and --debug-port sets its number",
    ),
    (
        "pilot-agent wait --timeoutSeconds 1 --url http://127.0.0.1:1/ready",
        1,
        "the proxy was not ready within 1 s: http://127.0.0.1:1/ready: connection refused; pilot-agent proxy serves this in the Pod of the proxy, and --url sets another address",
    ),
    ("pilot-agent istio-iptables --proxy-uid", 1, "flag needs an argument: --proxy-uid"),
    ("pilot-agent istio-iptables extra", 1, "unexpected argument 'extra'"),
    (
        "pilotctl web.shop proxy-config clusters -o json",
        2,
        "No such command 'web.shop'; did you mean pilotctl proxy-config clusters web.shop -o json?",
    ),
    (
        "pilotctl proxy-config web-1 clusters",
        2,
        "No such command 'web-1'; use pilotctl proxy-config clusters web-1",
    ),
    (
        "pilotctl proxy-config web-1",
        2,
        "No such command 'web-1'; commands are all, bootstrap, clusters, ecds, endpoints, listeners, log, rootca-compare, routes, secrets",
    ),
    (
        "pilotctl proxy-config routes web-1 --port 80",
        2,
        "No such option '--port'; --name selects a route configuration, which is named after its port, as in --name 80",
    ),
    (
        "pilotctl pc l web-1 --fqdn tea",
        2,
        "No such option '--fqdn'; routes and clusters have host names: pilotctl proxy-config routes PROXY --fqdn HOST",
    ),
    (
        "pilotctl rollout virtualservice/reviews -n shop",
        2,
        "No such command 'virtualservice/reviews'; use pilotctl rollout status virtualservice/reviews -n shop",
    ),
    (
        "pilotctl describe svc/https://tea.shop:8080/x",
        2,
        "'https://tea.shop:8080/x' is a URL, not a service: use svc/tea.shop",
    ),
    ("pilotctl rollout status -f vs.yaml", 2, "No such option '-f'; options are --namespace, --output"),
    ("pilotctl history --since 3h", 2, "No such option '--since'; options are --namespace, --output, --verbose"),
    ("pilotctl authz web-1", 2, "No such command 'web-1'; use pilotctl authz check web-1"),
    (
        "pilotctl waypoint apply shop",
        2,
        "Got unexpected extra argument (shop); pilotctl waypoint apply takes no arguments; -n NAMESPACE sets the namespace",
    ),
    ("pilotctl tag lst", 2, "No such command 'lst'; did you mean list?"),
    (
        "pilotctl workload group create --name VM_1 -n shop",
        2,
        "Invalid value for '--name': 'VM_1': expected the name of an object: at most 253 lower-case letters, digits, hyphens and dots",
    ),
    (
        "pilotctl workload group create --name vm -n Shop_1",
        2,
        "Invalid value for '-n' / '--namespace': 'Shop_1': expected the name of a namespace: at most 63 lower-case letters, digits and hyphens",
    ),
    (
        "pilotctl create-remote-secret --name 'A b'",
        2,
        "Invalid value for '--name': 'A b': expected the name of an object: at most 253 lower-case letters, digits, hyphens and dots",
    ),
    (
        "pilotctl analyze -n 'A b' vs.yaml",
        2,
        "Invalid value for '-n' / '--namespace': 'A b': expected the name of a namespace: at most 63 lower-case letters, digits and hyphens",
    ),
    (
        "pilotctl wait vs.yaml",
        2,
        "Invalid value for 'KIND/NAME': 'vs.yaml' is a file: use -f vs.yaml",
    ),
    (
        "pilotctl create-remote-secret -c nouser.yaml",
        1,
        "kubeconfig nouser.yaml: the context 'w' names the user 'admin', which is not in the list users; known: me",
    ),
    (
        "pilotctl create-remote-secret -c nousers.yaml",
        1,
        "kubeconfig nousers.yaml: the context 'w' names the user 'admin', and there is no list users",
    ),
    (
        "pilotctl tag list -c nocert.yaml",
        1,
        "kubeconfig nocert.yaml: users[me].user.client-certificate: /nope/me.crt: no such file",
    ),
    (
        "pilotctl tag list -c baddata.yaml",
        1,
        "kubeconfig baddata.yaml: clusters[c].cluster.certificate-authority-data: not base64: Invalid base64-encoded string: number of data characters (5) cannot be 1 more than a multiple of 4; for a PEM file, use certificate-authority with its path",
    ),
    (
        "pilotctl ztunnel-config workload --address http://127.0.0.1:15014",
        2,
        "Invalid value for '--address': 'http://127.0.0.1:15014': expected the IP address of a workload; use --ztunnel URL for the admin address of a ztunnel",
    ),
    (
        "pilotctl rollout status deployment/cart -n shop",
        2,
        "rollout status shows the delivery of mesh configuration, such as virtualservice/shop/cart; for Deployments use kubectl rollout status deployment/cart -n shop",
    ),
    (
        "pilotctl wait sts/shop/cart",
        2,
        "wait shows the delivery of mesh configuration, such as virtualservice/shop/cart; for StatefulSets use kubectl wait --for=condition=Available statefulset/cart -n shop",
    ),
    (
        "pilotctl rollout history deployment/cart",
        2,
        "No such command 'history'; pilotctl history lists changes of mesh configuration, and kubectl rollout history deployment/cart those of workloads",
    ),
    (
        "pilotctl rollout restart deployment/cart -n shop",
        2,
        "No such command 'restart'; use kubectl rollout restart deployment/cart -n shop",
    ),
    (
        "pilotctl rollout --address :1 status virtualservice/shop/cart",
        2,
        "No such option '--address'; options follow the command: pilotctl rollout COMMAND --address",
    ),
    (
        "pilotctl manifest diff default demo",
        2,
        "default and demo are profiles: use pilotctl profile diff default demo",
    ),
    (
        "pilotctl manifest diff default vs.yaml",
        2,
        "default is a profile, not a file: save its objects with pilotctl manifest generate --set profile=default -o FILE",
    ),
    (
        "pilotctl manifest generate --set profile=minimal,values.global.hub=x",
        1,
        "--set takes one setting: use --set profile=minimal --set values.global.hub=x",
    ),
    (
        "pilotctl shadow --set 'hub=a b,tag=c'",
        1,
        "--set takes one setting: use --set 'hub=a b' --set tag=c",
    ),
    (
        "pilotctl wait --for=condition=Programmed gateway/shop/gw",
        2,
        "Invalid value for '--for': 'condition=Programmed': pilotctl status shows conditions, and kubectl wait --for=condition=Programmed waits for them; this command waits for proxies",
    ),
    (
        "pilotctl workload entry configure -f entry-port.yaml -o out --clusterID x",
        1,
        "entry-port.yaml contains no WorkloadGroup, but WorkloadEntry; pilotctl workload group create prints a WorkloadGroup",
    ),
    (
        "pilotctl proxy-config clusters --file vs.yaml",
        1,
        "vs.yaml is not a config_dump: it is not JSON, but YAML or another text; save one with: kubectl exec POD -c istio-proxy -- pilot-agent request GET 'config_dump?include_eds' >FILE",
    ),
    (
        "pilotctl install --set profile=demoo -c nowhere",
        1,
        "spec.profile: unknown profile demoo; did you mean demo?; available: ambient, default, demo, empty, minimal, openshift, openshift-ambient, preview, remote, stable",
    ),
    (
        "pilotctl manifest generate --set profile=demoo --cluster-specific -c nowhere",
        1,
        "spec.profile: unknown profile demoo; did you mean demo?; available: ambient, default, demo, empty, minimal, openshift, openshift-ambient, preview, remote, stable",
    ),
    (
        "pilotctl manifest generate -f profile.yaml",
        1,
        "profile.yaml:4: spec.profile: unknown profile demoo; did you mean demo?; available: ambient, default, demo, empty, minimal, openshift, openshift-ambient, preview, remote, stable",
    ),
    (
        "pilotctl install --revision 1.24 -c nowhere",
        1,
        "--revision: invalid revision 1.24: expected a DNS label of lower-case letters, digits and hyphens, such as 1-24",
    ),
    (
        "pilotctl upgrade --revision Canary_1 -c nowhere",
        1,
        "--revision: invalid revision Canary_1: expected a DNS label of lower-case letters, digits and hyphens, such as canary-1",
    ),
    (
        "pilotctl explain 'outbound|80||cart.shop.svc.cluster.local' web.shop",
        2,
        "PROXY comes first: use pilotctl explain web.shop 'outbound|80||cart.shop.svc.cluster.local'",
    ),
    (
        "pilotctl manifest generate -f gateways.yaml",
        1,
        "gateways.yaml:4: spec.components.ingressGateways: expected a list, got a mapping: write a list: - name: edge",
    ),
    (
        "pilotctl manifest generate -f named-gateways.yaml",
        1,
        "named-gateways.yaml:4: spec.components.ingressGateways: expected a list, got a mapping: write a list: - name: edge",
    ),
    (
        "pilotctl manifest generate --set components.ingressGateways.name=edge",
        1,
        "spec.components.ingressGateways: expected a list, got a mapping: write components.ingressGateways[0].name",
    ),
    (
        "pilotctl manifest generate -f request.yaml",
        1,
        "request.yaml:7: spec.components.pilot.k8s.resources.request: unknown field request; did you mean requests?",
    ),
    (
        "pilotctl translate -f request.yaml -f operator.yaml --set components.pilot.enabld=1",
        1,
        "request.yaml:7: spec.components.pilot.k8s.resources.request: unknown field request; did you mean requests?; spec.components.pilot.enabld: unknown field enabld; did you mean enabled?; operator.yaml:4: spec.profil: unknown field profil; did you mean profile?",
    ),
    (
        "pilotctl manifest generate -f mesh-field.yaml",
        1,
        "mesh-field.yaml:4: spec.meshConfig.accessLogfile: unknown field; did you mean accessLogFile?",
    ),
    (
        "pilotctl manifest generate -f mesh-field.yaml --set meshConfig.accessLogfile=x",
        1,
        "spec.meshConfig.accessLogfile: unknown field; did you mean accessLogFile?",
    ),
    (
        "pilotctl proxy-status -o yml",
        2,
        "Invalid value for '-o' / '--output': 'yml' is not one of 'table', 'json', 'yaml'; did you mean yaml?",
    ),
    ("pilotctl kube-inject pod.yaml", 2, "Missing option '-f' / '--filename'; use -f pod.yaml"),
    (
        "pilotctl install demo",
        2,
        "Got unexpected extra argument (demo); pilotctl install takes no arguments; --set PATH=VALUE sets a setting, such as profile=demo",
    ),
    (
        "pilotctl manifest apply --set profile=demo",
        2,
        "No such command 'apply'; use pilotctl install --set profile=demo",
    ),
    (
        "pilot-operator serve",
        1,
        "unknown command 'serve' for pilot-operator; did you mean server? pilot-operator --help lists the commands",
    ),
]


class OtherServer(http.server.BaseHTTPRequestHandler):
    """A server that responds to every request with a JSON object, or refuses it as Envoy or ControlZ does."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"message": "hello"}')

    def do_POST(self) -> None:
        self._refuse(400, b"error: unknown logger name\n\nusage: /logging?<name>=<level>\n")

    def do_PUT(self) -> None:
        self._refuse(404, b"404 page not found\n")

    def _refuse(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    yield from serve(OtherServer)


@pytest.fixture(scope="module")
def grpc() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_send_settings, args=(listener,), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _send_settings(listener: socket.socket) -> None:
    """Respond to each connection with the first frame of HTTP/2."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the listener is closed
            return
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"\0\0\x12\4\0\0\0\0\0")


@pytest.mark.parametrize(("command", "status", "message"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_message_names_the_cause_and_the_fix(
    command: str,
    status: int,
    message: str,
    other: str,
    grpc: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        pathlib.Path(name).parent.mkdir(exist_ok=True)
        pathlib.Path(name).write_text(text.replace("OTHER", other))
    for name in ("latin.json", "latin.yaml"):
        pathlib.Path(name).write_bytes(b"caf\xe9: a")
    program, *words = shlex.split(command.replace("OTHER", other).replace("GRPC", grpc))
    assert import_module(f"pilot.cli.{program.replace('-', '_')}").main(words) == status
    error = capsys.readouterr().err.replace(other, "OTHER").replace(grpc, "GRPC")
    assert error.partition("Error: ")[2].removesuffix("\n") == message


@pytest.mark.parametrize(
    "arguments",
    ["rollout --help --address :1", "rollout --no-such -h", "rollout status --no-such --help", "authz --help --proxy"],
)
def test_help_takes_precedence_over_unknown_options(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pilotctl.main(shlex.split(arguments)) == 0
    name = " ".join(word for word in arguments.split() if word.isalpha())
    assert capsys.readouterr().out.startswith(f"Usage: pilotctl {name} ")


def test_option_after_the_end_of_options_does_not_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert pilotctl.main(["rollout", "status", "--no-such", "--", "--help"]) == 2
    assert "No such option '--no-such'" in capsys.readouterr().err


def run_python(statement: str) -> tuple[str, str]:
    """Run a statement in a process that has imported the commands. Return its standard output and error."""
    code = f"import pilot.cli\n{statement}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    return result.stdout, result.stderr


def test_interrupted_command_prints_nothing() -> None:
    assert run_python("raise KeyboardInterrupt") == ("", "")


def test_interrupted_pilotctl_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pilot.cli.ctl.client.PageClient.get", interrupt)
    assert pilotctl.main(["problems"]) == 130
    assert capsys.readouterr() == ("", "\n")


def test_internal_error_is_one_line() -> None:
    assert run_python("{}['a']") == (
        "",
        "Error: internal error: KeyError: 'a' in <string>:2; this is a bug, please report it "
        "(PILOT_TRACEBACK=1 prints the details)\n",
    )


def test_missing_package_is_named() -> None:
    assert run_python("import no_such_package") == (
        "",
        "Error: the Python package no_such_package is missing; install all dependencies: pip install pyistiod\n",
    )


ANALYSES = [
    ("no-group.yaml", 'spec.parentRefs[0].kind: kind Service needs group: ""; without it, the route has no effect'),
    (
        "no-group.yaml",
        "spec.rules[0].matches[0].method.service: 'acme.Tea/Get' is not a service name, so it matches no request; "
        "write service: acme.Tea, method: Get",
    ),
    ("no-group.yaml", "spec.rules[0].filters[0].type: a GRPCRoute has no filter RequestRedirect; use an HTTPRoute"),
    (
        "filter.yaml",
        "spec.accessLogging[0].filter.expression: position 14: unexpected '=> 400'; did you mean >=?",
    ),
    ("old-config.yaml", "has no field config; use typed_config with @type; the patch is ignored"),
    (
        "entry-port.yaml",
        "spec.address: '10.1.2.3:8080' contains a port: write address 10.1.2.3 and the port below ports",
    ),
    (
        "closed.yaml",
        "spec.parentRefs[0]: Gateway infra/gw accepts routes only from its own namespace; "
        "set listeners[0].allowedRoutes.namespaces.from to All or Selector",
    ),
    (
        "--meshConfigFile authz-mesh.yaml vs.yaml",
        "authz-mesh.yaml:3) extensionProviders[0]: port: required, the number of a port of the service",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), ANALYSES)
def test_analysis_names_the_fix(
    arguments: str,
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in analysis(arguments, capsys)


def test_analysis_reports_a_cause_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "\n1 error." in analysis("url.yaml", capsys)
    assert "address" not in analysis("closed.yaml", capsys)


def analysis(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the output of an analysis in the current directory."""
    for argument in filter(FILES.get, shlex.split(arguments)):
        pathlib.Path(argument).write_text(FILES[argument])
    assert pilotctl.main(["analyze", *shlex.split(arguments)]) in (0, 79)
    return capsys.readouterr().out
