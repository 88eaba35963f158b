"""Probes of what an engine does when it is shared, batched, woken or worn: one file each.

A probe states the steps it needs and turns what they saw into one finding and one sentence of
advice. Nothing here measures: ``orchestrator.diagnosing`` has workers carry out the steps
(methodology §6, Diagnostics).
"""
