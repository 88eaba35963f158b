"""Write what the documents take from the code: the command line's help, tables, a sample.

    python tool/gen_docs.py           write docs/CLI.md and the marked parts of other documents
    python tool/gen_docs.py --check   exit 1 and name each document that is not up to date

A marked part lies between ``<!-- generated: NAME -->`` and ``<!-- end generated -->``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
POLICY = ROOT / "npumark" / "data" / "policy.toml"
MANIFEST = ROOT / "npumark" / "data" / "manifest.json"
SAMPLE = ROOT / "tests" / "sample_plugin"
WIDTH = 80

_MARKED = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end generated -->)", re.DOTALL)


def main(argv: list[str]) -> int:
    """Write the documents, or with ``--check`` compare them; return the exit status."""
    check = argv == ["--check"]
    if argv and not check:
        print(__doc__, file=sys.stderr)
        return 2
    stale = []
    for path, text in documents(ROOT).items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if not check:
            path.write_text(text, encoding="utf-8", newline="\n")
    for name in stale:
        print(f"{name}: {'not up to date; run python tool/gen_docs.py' if check else 'written'}")
    return 1 if check and stale else 0


def documents(root: Path) -> dict[Path, str]:
    """Return every document that holds generated text, with the text it must have."""
    found = {root / "docs" / "CLI.md": command_reference()}
    for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        if path in found:
            continue
        text = path.read_text(encoding="utf-8")
        if _MARKED.search(text):
            found[path] = fill(text)
    return found


def fill(text: str) -> str:
    """Return ``text`` with every marked part made anew. Raises KeyError for an unknown name."""

    def part(match: re.Match[str]) -> str:
        return f"{match[1]}\n{PARTS[match[2]]()}\n{match[3]}"

    return _MARKED.sub(part, text)


def policy_table() -> str:
    """Return the policy's values with their origins, as they stand in policy.toml."""
    lines = ["| threshold | value | meaning | origin |", "| --- | --- | --- | --- |"]
    for key, value, meaning, origin in policy_rows(POLICY.read_text(encoding="utf-8")):
        lines.append(f"| `{key}` | {value} | {meaning} | {origin} |")
    return "\n".join(lines) + "\n"


def policy_rows(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield (key, value, meaning, origin) of each setting.

    A comment line ``# origin: …`` holds for the settings below it up to the next one or the next
    section; a comment after a value is its meaning, or an origin of its own. Raises ValueError
    for a setting that has no origin: every threshold must say where it comes from.
    """
    values = tomllib.loads(text)
    section, origin = "", ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"\[([\w.]+)\]", line.strip()):
            section, origin = heading[1], ""
        elif comment := re.match(r"#\s*origin:\s*(.+)", line):
            origin = comment[1].strip()
        elif section and (setting := re.match(r"(\w+)\s*=\s*[^#]*(?:#\s*(.*))?", line)):
            meaning = (setting[2] or "").strip()
            own = origin
            if meaning.startswith("origin:"):
                meaning, own = "", meaning.removeprefix("origin:").strip()
            if not own:
                raise ValueError(f"{section}.{setting[1]} has no origin")
            yield f"{section}.{setting[1]}", _value(values, section, setting[1]), meaning, own


def workload_table() -> str:
    """Return the pack's workloads, or a line that says the pack holds none yet."""
    from npumark.pack.manifest import load_manifest

    if not MANIFEST.is_file():
        return "The pack has not been built.\n"
    lines = [
        "| workload | tier | parameters | MACs | encodings |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for w in load_manifest(MANIFEST).workloads.values():
        encodings = ", ".join(v.id if v.validated else f"{v.id} (not counted)" for v in w.variants)
        lines.append(
            f"| {w.title} (`{w.id}`) | {w.tier} | {w.params:,} | {w.macs:,} | {encodings} |"
        )
    return "\n".join(lines) + "\n"


def _beside(name: str) -> Any:
    # Beside this script and on no other path: found by file, whoever loads this one.
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sample_engine() -> str:
    """Return the sample plug-in that the tests install: its project file and its module."""
    parts = []
    for name, language in (("pyproject.toml", "toml"), ("sample_engine.py", "python")):
        text = (SAMPLE / name).read_text(encoding="utf-8")
        parts.append(f"`{name}`\n\n```{language}\n{text}```\n")
    return "\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "policy": policy_table,
    "workloads": workload_table,
    "sample-engine": sample_engine,
    "engines": lambda: _beside("engine_docs").engine_table(),
    "providers": lambda: _beside("engine_docs").provider_sections(),
    "refusals": lambda: _beside("server_docs").refusal_table(),
    "server-limits": lambda: _beside("server_docs").limits_table(),
    "environments": lambda: _beside("engine_docs").environment_table(),
}


def command_reference() -> str:
    """Return docs/CLI.md: the help of every command, at one width and without colour."""
    os.environ.update(COLUMNS=str(WIDTH), NO_COLOR="1", TERM="dumb", LINES="24")
    os.environ.pop("FORCE_COLOR", None)
    import typer

    from npumark.cli.app import app

    parts = [
        "# Command line",
        "",
        "Generated by `tool/gen_docs.py` from the commands' own help; do not edit.",
        "",
    ]
    for path, text in _helps(typer.main.get_command(app), "npumark", None):
        parts += [f"{'#' * (path.count(' ') + 2)} {path}", "", "```text", text, "```", ""]
    return "\n".join(parts)


def _helps(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    context = command.make_context(name, ["--help"], parent=parent, resilient_parsing=True)
    path = context.command_path
    yield path, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    for child in getattr(command, "commands", {}):
        yield from _helps(command.commands[child], child, context)


def _value(values: dict[str, Any], section: str, key: str) -> str:
    for part in section.split("."):
        values = values[part]
    return repr(values[key])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
