"""Tables of Envoy resources: each module has a HEAD and a function `rows` that takes resources in proto JSON."""
