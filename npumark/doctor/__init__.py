"""What on this machine would spoil a measurement, and the command or setting that fixes it.

One module per kind of check; each reads and judges, and changes nothing. What the run's own
preconditions judge is judged here by the same readings and thresholds.
"""
