"""What Ingresses mean: as Gateways and VirtualServices of Istio. https://istio.io/latest/docs/tasks/traffic-management/ingress/kubernetes-ingress/"""
