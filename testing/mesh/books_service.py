"""The service `books` in namespace `shop`, with one pod, for end-to-end tests of sidecars."""

from __future__ import annotations


def books(vip: str, server: str) -> str:
    """Return the service's objects as YAML, with a virtual address and the address of its pod."""
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: books, namespace: shop}}
spec:
  clusterIP: {vip}
  clusterIPs: [{vip}]
  selector: {{app: books}}
  ports: [{{name: http, port: 80, targetPort: 8080}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: books-0, namespace: shop, labels: {{app: books, security.istio.io/tlsMode: istio}}}}
spec: {{serviceAccountName: books, containers: [{{name: app, image: books, ports: [{{containerPort: 8080}}]}}]}}
status: {{phase: Running, podIP: {server}, podIPs: [{{ip: {server}}}], conditions: [{{type: Ready, status: "True"}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: books-0, namespace: shop, labels: {{kubernetes.io/service-name: books}}}}
addressType: IPv4
endpoints: [{{addresses: [{server}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: books-0, namespace: shop}}}}]
ports: [{{name: http, port: 8080, protocol: TCP}}]
"""
