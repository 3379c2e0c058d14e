"""Shared utilities, which import no other package of the control plane."""
