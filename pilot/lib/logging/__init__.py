"""Log records, their scopes and their output."""
