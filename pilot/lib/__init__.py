"""Shared utilities. They import no other package of the control plane."""
