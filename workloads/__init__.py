"""Build-time definitions of the networks and the tools that turn them into the shipped pack."""
