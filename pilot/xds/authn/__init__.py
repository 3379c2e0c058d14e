"""Who a caller is, by its certificate or its token."""
