"""CustomResourceDefinitions, generated from the structs that represent configuration."""
