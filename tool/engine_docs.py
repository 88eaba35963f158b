"""The generated parts of docs/ENGINES.md: what the catalogue of engines says, as tables.

One row or section per provider; nothing here adds to what ``npumark.engines.catalogue`` holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from npumark.engines.catalogue import ENVIRONMENTS, PROVIDERS, Provider

_CACHES = {
    "ep-context": "compiled once into an EPContext graph",
    "folder": "compiled once into a folder that the runtime fills",
    "none": "none: every attempt loads from the pack's own files",
}


def engine_table() -> str:
    """Return every engine by id: through what, on what, what it accelerates, how far tried."""
    lines = [
        "| engine | through | accelerates | tried |",
        "| --- | --- | --- | --- |",
    ]
    for row in PROVIDERS:
        title = f"{row.title} (never published)" if row.local_only else row.title
        for state, ids in _states(row).items():
            names = ", ".join(f"`{name}`" for name in ids)
            lines.append(f"| {names} | {title} | {row.accelerates} | {state} |")
    return "\n".join(lines) + "\n"


def provider_sections() -> str:
    """Return a section per provider: packages, options, variants, cache, proof, traps."""
    return "\n".join(_section(row) for row in PROVIDERS)


def environment_table() -> str:
    """Return the environments that `npumark engines install` makes."""
    lines = [
        "| name | what it is | pinned packages | works on |",
        "| --- | --- | --- | --- |",
    ]
    for row in ENVIRONMENTS:
        what = f"{row.title}: {row.note}" if row.note else row.title
        pins = ", ".join(f"`{pin}`" for pin in row.requirements)
        lines.append(f"| `{row.name}` | {what} | {pins} | {', '.join(row.platforms)} |")
    return "\n".join(lines) + "\n"


def _ids(row: Provider) -> list[str]:
    return list(dict.fromkeys(row.engine_id(role) for role in row.roles))


def _states(row: Provider) -> dict[str, list[str]]:
    """Return how far a provider's engines were tried, and which of them so far."""
    found: dict[str, list[str]] = {}
    for role in row.roles:
        ids = found.setdefault(row.state(role), [])
        if row.engine_id(role) not in ids:
            ids.append(row.engine_id(role))
    return found


def _section(row: Provider) -> str:
    facts = [
        ("engines", ", ".join(f"`{name}`" for name in _ids(row))),
        ("comes with", _source(row)),
        ("needs", row.needs),
        ("works on", ", ".join(row.platforms)),
        ("measures", _variants(row.variants_by_role)),
        ("and with `--all-variants`", _variants(row.extra_variants_by_role)),
        ("options always set", ", ".join(f"`{k}={v}`" for k, v in row.options.items())),
        ("compiled models", _CACHES[row.cache]),
        ("proof of placement", row.placement),
        (
            "timing",
            "calls return early, so each is timed until its outputs can be read"
            if row.asynchronous
            else "",
        ),
        ("publication", "local only: its results are never published" if row.local_only else ""),
        (
            "tried",
            "; ".join(
                f"{', '.join(f'`{name}`' for name in ids)}: {state}"
                for state, ids in _states(row).items()
            ),
        ),
    ]
    lines = [f"### {row.title}", ""]
    lines += [f"- {name}: {text}" for name, text in facts if text]
    if row.traps:
        lines += ["- known traps:", *(f"  - {trap}" for trap in row.traps)]
    return "\n".join(lines) + "\n"


def _source(row: Provider) -> str:
    packages = ", ".join(f"`{name}`" for name in row.packages)
    if row.environment is not None:
        return f"`npumark engines install {row.environment}` ({packages})"
    return f"the default installation ({packages})" if packages else "its maker's installer"


def _variants(by_role: Mapping[str, Iterable[str]]) -> str:
    """Return variants by role; roles that share a list stand together."""
    roles: dict[tuple[str, ...], list[str]] = {}
    for role, variants in by_role.items():
        if variants:
            roles.setdefault(tuple(variants), []).append(role)
    return "; ".join(
        f"{', '.join(f'`{v}`' for v in variants)} ({', '.join(named)})"
        for variants, named in roles.items()
    )
