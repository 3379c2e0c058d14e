"""The kinds of configuration, one declaration each."""
