"""Metrics, version and debug pages, on the monitoring port (15014) and below /debug on port 8080.

`application.application` builds the web application of port 15014, and `application.add_debug` adds the debug pages to
that of port 8080.
"""
