"""The orchestrator: plans, schedules and supervises workers; never imports an engine."""
