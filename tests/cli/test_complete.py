from __future__ import annotations

from npumark.cli import complete
from npumark.pack.manifest import load_manifest


def test_variants_are_those_of_the_pack_and_those_that_engines_derive() -> None:
    packed = {v.id for w in load_manifest().workloads.values() for v in w.variants}
    assert set(complete.variants("")) == {*packed, "bf16"}
    assert complete.variants("bf") == ["bf16"]
