"""Configuration objects over xDS (MCP): how they look on the wire, and the stream that asks a server for them."""
