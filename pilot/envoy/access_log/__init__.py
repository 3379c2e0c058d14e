"""Access logs: what each provider writes, and which of them a proxy has."""
