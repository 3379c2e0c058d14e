"""EnvoyFilters: patches of what is built, as a step of its own behind it."""
