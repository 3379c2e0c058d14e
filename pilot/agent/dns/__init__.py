"""The DNS server for the application."""
