"""Configuration objects over xDS (MCP): their encoding, and the client stream that subscribes to them."""
