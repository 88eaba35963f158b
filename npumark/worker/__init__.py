"""The worker: one fresh interpreter that does one job and writes one result."""
