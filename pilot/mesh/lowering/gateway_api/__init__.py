"""Converts objects of the Gateway API to Gateways, VirtualServices, DestinationRules and ServiceEntries."""
