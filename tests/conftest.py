"""What every test shares: properties are judged by what holds, never by how fast."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("npumark", deadline=None, derandomize=True)
settings.load_profile("npumark")
