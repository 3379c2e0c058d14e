"""HTTP filters. Prebuilt messages are shared: copy them, and never change them."""
