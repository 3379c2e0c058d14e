"""Objects that are read from the API servers of clusters."""
