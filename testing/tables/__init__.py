"""Tables of cases that several tests share."""
