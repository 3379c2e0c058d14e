"""The live dashboard of the mesh: a graph, proxies, problems, pushes and certificates, updated by server-sent
events."""
