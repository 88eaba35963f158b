"""NPUMark: honest measurement of AI accelerators."""

__version__ = "0.1.0"
