from __future__ import annotations

from pathlib import Path

from npumark.score import formula


def tree(root: Path, text: bytes) -> tuple[Path, ...]:
    for part in formula.PARTS:
        (root / part).mkdir(parents=True, exist_ok=True)
    (root / "score" / "stats.py").write_bytes(text)
    (root / "score" / "formula.py").write_bytes(b"itself")
    (root / "gates" / "judge.py").write_bytes(b"gate\n")
    return formula.formula_files(root)


def test_line_endings_do_not_matter_and_content_does(tmp_path: Path) -> None:
    hashes = {}
    for name, text in {
        "lf": b"a\nb\n",
        "crlf": b"a\r\nb\r\n",
        "cr": b"a\rb\r",
        "x": b"a\nc\n",
    }.items():
        root = tmp_path / name
        hashes[name] = formula.hash_sources(tree(root, text), root)
    assert hashes["lf"] == hashes["crlf"] == hashes["cr"] != hashes["x"]


def test_it_covers_gates_and_score_but_not_itself(tmp_path: Path) -> None:
    names = [p.relative_to(tmp_path).as_posix() for p in tree(tmp_path, b"")]
    assert names == ["gates/judge.py", "score/stats.py"]
    shipped = {p.name for p in formula.formula_files()}
    assert {"stats.py", "repetition.py", "judge.py", "derive.py"} <= shipped
    assert "formula.py" not in shipped


def test_this_builds_formula_is_known_and_others_are_not() -> None:
    assert formula.is_known_formula(formula.formula_sha256())
    assert not formula.is_known_formula("0" * 64)
