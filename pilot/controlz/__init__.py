"""ControlZ: web pages and a JSON API to inspect a running process and change its log levels.

https://istio.io/latest/docs/ops/diagnostic-tools/controlz/
"""
