"""Local and remote clusters: their API servers, and the controllers that write into them."""
