"""HTTP filters, a file each. Prebuilt ones are shared: they are copied into messages, never changed."""
