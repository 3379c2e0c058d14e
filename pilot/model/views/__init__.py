"""The values that follow from the tables, as derived functions."""
