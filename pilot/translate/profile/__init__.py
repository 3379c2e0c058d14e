"""Which resources a kind of proxy gets. The concept folders build them; nothing is built here."""
