"""Converts Ingresses to Gateways and VirtualServices.

https://istio.io/latest/docs/tasks/traffic-management/ingress/kubernetes-ingress/
"""
