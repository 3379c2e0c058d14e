"""EnvoyFilters, which patch resources after they are built."""
