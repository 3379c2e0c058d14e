"""Profiles of this process in the formats of `go tool pprof`.

Nothing is imported or run until a profile is requested.
"""
