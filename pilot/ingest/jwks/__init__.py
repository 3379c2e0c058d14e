"""Key sets of issuers: fetched outside of derivations, kept over failures and restarts, and put into their table."""
