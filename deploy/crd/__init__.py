"""CustomResourceDefinitions, generated from the structs of configuration."""
