"""The live dashboard of the mesh, which shows a graph, proxies, problems, pushes and certificates.

Server-sent events update it.
"""
