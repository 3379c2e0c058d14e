"""Clusters (CDS): the outbound, inbound, built-in, HBONE and VIP clusters of a proxy."""
