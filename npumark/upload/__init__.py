"""Sending results to a server: what leaves the computer, and that it arrives exactly once."""
