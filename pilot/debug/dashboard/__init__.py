"""One page for people: the mesh as a picture, proxies, problems, pushes and certificates, live by server-sent events."""
