from __future__ import annotations

from npumark.cli import complete
from npumark.pack.manifest import load_manifest


def test_variants_are_those_of_the_pack_and_those_that_engines_derive() -> None:
    packed = {v.id for w in load_manifest().workloads.values() for v in w.variants}
    assert set(complete.variants("")) == {*packed, "bf16"}
    assert complete.variants("bf") == ["bf16"]


def test_engines_and_environments_are_those_of_the_catalogue() -> None:
    assert {"ort-cpu", "openvino-npu", "ort-qnn-npu"} <= set(complete.engines(""))
    assert complete.engines("ort-qn") == ["ort-qnn-npu"]
    assert complete.environments("qn") == ["qnn"]
    assert complete.environments("no-such") == []
