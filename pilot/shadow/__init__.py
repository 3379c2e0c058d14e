"""Compares this control plane with a running istiod on a live mesh. Nothing is written, and no proxy is served."""
