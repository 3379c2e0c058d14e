"""Profiles of this process in the formats that `go tool pprof` opens; nothing here runs, or is imported, before somebody asks for one."""
