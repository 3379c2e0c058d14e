"""Worker processes, which process untrusted input under limits of CPU time and memory."""
