"""What follows from the tables, as derived functions."""
