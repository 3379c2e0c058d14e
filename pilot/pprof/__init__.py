"""Profiles of this process in the formats of `go tool pprof`. Nothing is imported or run before a profile is
requested."""
