"""Analyzers of objects that a control plane does not read, such as Deployments and webhook configurations.

They have the names and severities of istioctl's analyzers, and only `pilotctl analyze` runs them.
"""
