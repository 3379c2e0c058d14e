"""The injection and validation webhooks; nothing is here yet."""
