"""The steps of diagnostics probes, as a worker carries them out: one module per kind of step."""
