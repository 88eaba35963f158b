"""Set up, run and check npumark with nothing but Python 3.11 or newer.

    python3 tool/dev.py run [ARGUMENTS]   set up, then `npumark run --quick ARGUMENTS`
    python3 tool/dev.py test              set up, then every check: format, lint, types,
                                          layering, generated files, tests

Everything is installed into `.venv` beside this repository's pyproject.toml. Nothing is
installed again while pyproject.toml and the interpreter stay the same, so a checkout that has
been set up works without a network.

The tests of engines that live in environments of their own use `.venv-engines`, which `test`
fills with npumark's own command, and `.venv-swiftshader`, a Vulkan adapter in software from
Debian's chromium-common. Those of the server use PostgreSQL and Chromium, which `test` installs
as root where Debian's package tools are. What cannot be had is named, and its tests skip.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "npumark-setup.json"
OLDEST = (3, 11)
WINDOWS = os.name == "nt"
USAGE_ERROR = 2
SETUP_FAILED = 1
NO_NETWORK = 6
INTERRUPTED = 130

TEST_ENVIRONMENTS = ("ggml", "ort-openvino", "qnn", "webgpu", "mlx")
"""What `tests/real` runs in: the environments that need no hardware of their own."""

DEBIAN = Path("/")
DEBIAN_PACKAGES = {
    "postgresql": "usr/lib/postgresql/*/bin/initdb",
    "chromium": "usr/bin/chromium",
}
"""What the server's tests use of Debian, and the program that shows that it is there."""

VULKAN_PACKAGE = "chromium-common"
VULKAN_FILES = ("libvk_swiftshader.so", "vk_swiftshader_icd.json", "libvulkan.so.1")


class SetupFailed(Exception):
    """The sentence that tells the user what stopped the set-up and what to do."""


def main(argv: list[str]) -> int:
    """Carry out ``argv`` (the words after the script's name); return the exit status."""
    if sys.version_info[:2] < OLDEST:
        have, need = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, OLDEST))
        print(
            f"error: this is Python {have}; npumark needs Python {need} or newer.", file=sys.stderr
        )
        print("next: run this script with a newer interpreter, e.g. python3.12", file=sys.stderr)
        return USAGE_ERROR
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    try:
        if command == "run":
            set_up(tests=False)
            return subprocess.call([str(python()), "-m", "npumark", "run", "--quick", *rest])
        if command == "test" and not rest:
            set_up(tests=True)
            return check()
    except SetupFailed as fault:
        print(f"error: {fault}", file=sys.stderr)
        return SETUP_FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    print(__doc__, file=sys.stderr)
    return 0 if command in ("-h", "--help") else USAGE_ERROR


def python() -> Path:
    """Return the environment's interpreter."""
    return VENV / ("Scripts/python.exe" if WINDOWS else "bin/python")


def script(name: str) -> str:
    """Return the path of a console script of the environment."""
    return str(python().parent / (name + ".exe" if WINDOWS else name))


def set_up(*, tests: bool) -> None:
    """Make `.venv` and install npumark into it, unless that has been done already.

    Raises SetupFailed with a sentence for the user.
    """
    if not _interpreter_works():
        say("creating .venv")
        _make_environment()
    wanted = fingerprint(ROOT / "pyproject.toml")
    done = _read_stamp()
    if done.get("pyproject") == wanted and (done.get("tests") or not tests):
        return
    target = ".[test]" if tests else "."
    say(f"installing npumark ({target}) into .venv; the first time takes a few minutes")
    install = [str(python()), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    if subprocess.call([*install, "--editable", target], cwd=ROOT, stdout=sys.stderr) != 0:
        raise SetupFailed(
            "the packages could not be installed (pip says why above).\n"
            "next: connect to the network and run the same command again; once it has "
            "succeeded, no network is needed."
        )
    STAMP.write_text(json.dumps({"pyproject": wanted, "tests": tests}) + "\n", encoding="utf-8")


def fingerprint(pyproject: Path) -> str:
    """Return what an installation depends on: the project file and the environment's Python."""
    return hashlib.sha256(pyproject.read_bytes() + sys.version.encode()).hexdigest()


def check() -> int:
    """Run every check, the tests last; name what failed."""
    failed: list[str] = []
    for name, command in checks():
        say(name, file=sys.stdout)
        started = time.monotonic()
        if subprocess.call(command, cwd=ROOT) != 0:
            failed.append(name)
            took = time.monotonic() - started
            say(f"{name}: FAILED after {took:.0f} s", file=sys.stdout)
    install_engines()
    install_debian()
    fetch_swiftshader()
    so_far = "failed so far: " + ", ".join(failed)
    say(so_far if failed else "all checks passed; now the tests", file=sys.stdout)
    if not run_tests():
        failed.append("tests")
    if failed:
        say("FAILED: " + ", ".join(failed), file=sys.stdout)
    return 1 if failed else 0


def run_tests() -> bool:
    """Run the tests in several processes; say whether all passed.

    Two at the least: much of a test's time is spent waiting for a worker. No more than four: some
    tests hold a whole network in memory.
    """
    processes = max(2, min(4, os.cpu_count() or 1))
    # One that runs out of tests takes over some of another's: neighbours stay together.
    share = ["-n", str(processes), "--dist", "worksteal"]
    return subprocess.call([str(python()), "-m", "pytest", *share], cwd=ROOT) == 0


def checks() -> list[tuple[str, list[str]]]:
    """Return the checks before the tests: a name and a command each."""
    interpreter = str(python())
    found = [
        ("format", [interpreter, "-m", "ruff", "format", "--check"]),
        ("lint", [interpreter, "-m", "ruff", "check"]),
        ("types", [interpreter, "-m", "mypy"]),
        ("layering", [script("lint-imports")]),
    ]
    generated = [
        ("generated documents", ["gen_docs.py", "--check"]),
        ("record schema", ["gen_schema.py", "--check"]),
        ("versions", ["check_versions.py"]),
        ("pack manifest", ["build_pack.py", "merge", "--check"]),
    ]
    for name, (tool, *arguments) in generated:
        if (ROOT / "tool" / tool).is_file():
            found.append((name, [interpreter, str(ROOT / "tool" / tool), *arguments]))
    return found


def install_engines() -> None:
    """Install the environments that the tests use, where this platform has them and they are not
    there with the same pins already. One that cannot be had is named; its tests skip."""
    npumark = [str(python()), "-m", "npumark", "engines", "install"]
    folder = ROOT / ".venv-engines"
    env = {
        **os.environ,
        "NPUMARK_ENGINES": str(folder),
        "NPUMARK_HOME": str(folder / ".home"),
    }
    listed = subprocess.run([*npumark, "--json"], env=env, capture_output=True, text=True)
    try:
        found = {row["name"]: row for row in json.loads(listed.stdout)["environments"]}
    except (ValueError, KeyError, TypeError):
        say("no environments: npumark cannot list them; their tests skip", file=sys.stdout)
        return
    wanted = [name for name in TEST_ENVIRONMENTS if found.get(name, {}).get("for_this_computer")]
    absent = [name for name in TEST_ENVIRONMENTS if name not in wanted]
    if absent:
        say(f"not for this platform, their tests skip: {', '.join(absent)}", file=sys.stdout)
    for name in wanted:
        if found[name]["state"] == "installed":
            continue
        say(f"installing the environment {name}", file=sys.stdout)
        status = subprocess.call([*npumark, name], env=env)
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        if status == NO_NETWORK:
            say(f"no network: {name} and what follows is left out, its tests skip", sys.stdout)
            return
        if status != 0:
            say(f"{name} could not be installed (see above); its tests skip", file=sys.stdout)


def install_debian() -> None:
    """Install the packages that the server's tests use, where Debian's package tools are and root
    asks for them; say which cannot be had: their tests skip."""
    absent = [name for name, program in DEBIAN_PACKAGES.items() if not any(DEBIAN.glob(program))]
    if absent and not (shutil.which("apt-get") and os.geteuid() == 0):
        say(f"only root on Debian can install {', '.join(absent)}; their tests skip", sys.stdout)
        return
    for name in absent:
        say(f"installing {name}", file=sys.stdout)
        apt_get(["-y", "--no-install-recommends", "install", name], ROOT)
        if not any(DEBIAN.glob(DEBIAN_PACKAGES[name])):
            say(f"no {name}: Debian's package was not to be had; its tests skip", sys.stdout)


def apt_get(words: list[str], place: Path) -> None:
    """Have apt-get do something in a folder without a word and without asking; if that fails, once
    more with fresh lists of packages, which a fresh machine has none of."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}

    def call(*command: str) -> int:
        quiet = subprocess.DEVNULL
        return subprocess.call(
            ["apt-get", "-qq", *command], cwd=place, env=env, stdout=quiet, stderr=quiet
        )

    if call(*words) != 0:
        call("update")
        call(*words)


def fetch_swiftshader() -> None:
    """Fetch a Vulkan adapter in software for the tests of WebGPU, where Debian's package tools
    are and its package is; elsewhere say that these tests skip."""
    folder = ROOT / ".venv-swiftshader"
    if all((folder / name).is_file() for name in VULKAN_FILES):
        return
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        say("no SwiftShader: it is taken from Debian's packages; its tests skip", sys.stdout)
        return
    say("fetching SwiftShader", file=sys.stdout)
    with tempfile.TemporaryDirectory(prefix="npumark-") as name:
        place = Path(name)
        apt_get(["-o", "APT::Sandbox::User=root", "download", VULKAN_PACKAGE], place)
        for package in place.glob("*.deb"):
            subprocess.call(["dpkg-deb", "-x", str(package), str(place / "x")])
        files = [place / "x/usr/lib/chromium" / name for name in VULKAN_FILES]
        if not all(file.is_file() for file in files):
            say(f"no SwiftShader: {VULKAN_PACKAGE} was not to be had; its tests skip", sys.stdout)
            return
        folder.mkdir(exist_ok=True)
        for file in files:
            shutil.copy(file, folder)


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line about what this script does, in order with what the commands print.

    It goes to stderr unless ``file`` says otherwise: the stdout of `run` is npumark's alone.
    """
    print(f"dev.py: {text}", file=file or sys.stderr, flush=True)


def _interpreter_works() -> bool:
    if not python().exists():
        return False
    probe = [str(python()), "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        found = subprocess.run(probe, capture_output=True, text=True, check=False)
    except OSError:
        return False
    return found.returncode == 0 and tuple(map(int, found.stdout.split())) >= OLDEST


def _make_environment() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == 0:
        return
    said = (made.stdout + made.stderr).strip()
    hint = "make room in this folder, or check that it can be written to"
    if "ensurepip" in said:
        hint = "install your system's venv package (Debian and Ubuntu: apt install python3-venv)"
    raise SetupFailed(f"the environment .venv could not be created:\n{said}\nnext: {hint}.")


def _read_stamp() -> dict[str, object]:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
