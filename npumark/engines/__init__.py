"""Engines: one module per runtime, imported in a worker only."""
