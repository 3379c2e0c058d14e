"""ControlZ: a site of a few pages, and the same as JSON, with which people look at a running process and change how
much it logs.

https://istio.io/latest/docs/ops/diagnostic-tools/controlz/
"""
