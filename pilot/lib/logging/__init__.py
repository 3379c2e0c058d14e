"""Log records, log scopes and log output."""
