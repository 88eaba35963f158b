"""One name for this platform, wherever it is asked for."""

from __future__ import annotations

import sys

import pytest

from npumark.engines import platforms
from npumark.engines.platforms import here, is_x86


@pytest.mark.parametrize(
    ("system", "machine", "wheels", "name", "x86"),
    [
        ("linux", "x86_64", "linux-x86_64", "linux-x86_64", True),
        ("linux", "arm64", "linux-aarch64", "linux-aarch64", False),
        ("darwin", "arm64", "macosx-14.0-arm64", "macos-arm64", False),
        # An emulated interpreter: the machine is an ARM one, what it can load is not.
        ("win32", "ARM64", "win-amd64", "windows-amd64", True),
        ("win32", "ARM64", "win-arm64", "windows-arm64", False),
        ("freebsd14", "amd64", "freebsd-14-amd64", "freebsd14-x86_64", True),
    ],
)
def test_the_interpreters_own_platform_counts(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, wheels: str, name: str, x86: bool
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platforms.platform, "machine", lambda: machine)
    monkeypatch.setattr(platforms.sysconfig, "get_platform", lambda: wheels)
    assert (here(), is_x86()) == (name, x86)
