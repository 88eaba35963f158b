"""The arithmetic from attempts to score: pure functions, the same for run, verify and server."""
