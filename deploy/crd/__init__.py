"""CustomResourceDefinitions, made from the structs that configuration is decoded into."""
