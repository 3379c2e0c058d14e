"""The pages of port 15014."""
