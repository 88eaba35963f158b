from __future__ import annotations

from pathlib import Path

import pytest

from npumark.engines.model_cache import SIDECAR, ModelCache


class Compiler:
    """Writes a model unless there is one; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.compiled = 0
        self.failures = failures

    def __call__(self, folder: Path) -> bytes:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("cannot import the model")
        blob = folder / "a.blob"
        if not blob.exists():
            self.compiled += 1
            blob.write_bytes(b"model")
        return blob.read_bytes()


def test_a_sealed_model_is_used_again(tmp_path: Path) -> None:
    compiler = Compiler()
    for _ in range(3):
        assert ModelCache(tmp_path / "c").build(compiler) == b"model"
    assert compiler.compiled == 1


@pytest.mark.parametrize("damage", ["change", "truncate", "remove", "add", "unseal", "garble"])
def test_any_damage_compiles_again_once(tmp_path: Path, damage: str) -> None:
    compiler = Compiler()
    cache = ModelCache(tmp_path / "c")
    cache.build(compiler)
    blob = tmp_path / "c" / "models" / "a.blob"
    sidecar = tmp_path / "c" / SIDECAR
    if damage == "change":
        blob.write_bytes(b"mOdel")
    elif damage == "truncate":
        blob.write_bytes(b"mod")
    elif damage == "remove":
        blob.unlink()
    elif damage == "add":
        blob.with_name("b.blob").write_bytes(b"")
    elif damage == "unseal":
        sidecar.unlink()
    else:
        sidecar.write_text("[")
    assert not cache.intact()
    assert cache.build(compiler) == b"model"
    assert compiler.compiled == 2
    assert cache.intact()


def test_a_model_that_does_not_load_is_compiled_again_once(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "c")
    cache.build(Compiler())
    again = Compiler(failures=1)
    assert cache.build(again) == b"model"
    assert again.compiled == 1
    with pytest.raises(RuntimeError):
        cache.build(Compiler(failures=2))


def test_a_first_failure_is_not_tried_twice(tmp_path: Path) -> None:
    compiler = Compiler(failures=1)
    with pytest.raises(RuntimeError):
        ModelCache(tmp_path / "c").build(compiler)
    assert compiler.failures == 0
