"""Addresses of the gateways of networks that have only a host name: looked up beside all derivations, and put into a table."""
