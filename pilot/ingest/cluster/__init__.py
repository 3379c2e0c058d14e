"""Objects of clusters, from their API servers."""
