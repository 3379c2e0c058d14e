"""Tables of Envoy resources. Each module has a HEAD and a function `rows` that takes resources in proto JSON."""
