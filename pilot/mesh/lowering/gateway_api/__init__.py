"""What the objects of the Gateway API mean: as Gateways, VirtualServices and DestinationRules of Istio, and as conditions of their status."""
