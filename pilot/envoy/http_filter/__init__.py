"""HTTP filters. Prebuilt messages are shared, so they must be copied and never modified."""
