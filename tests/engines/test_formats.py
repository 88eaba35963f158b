from __future__ import annotations

import pytest

from npumark.engines.formats import Work, convolution_macs, product_macs, weigh


def test_one_layer_without_a_count_makes_all_vote_with_their_time() -> None:
    found = weigh([Work("FP32", 30, 1_000_000), Work("INT8", 70, None)], {})
    assert (found.ran, found.by) == ("INT8", "time")
    assert found.share == {"INT8": 0.7, "FP32": 0.3}


def test_a_tie_has_one_winner_in_whichever_order_layers_come() -> None:
    layers = [Work("INT8", 1, 5), Work("FP32", 9, 5)]
    assert weigh(layers, {}).ran == weigh(layers[::-1], {}).ran == "FP32"


def test_no_work_has_no_format() -> None:
    found = weigh([], {})
    assert found.ran is None
    assert found.why


@pytest.mark.parametrize(
    ("first", "output", "expected"),
    [
        ((512, 2048), (512, 2048), 512 * 2048 * 2048),
        ((2, 12, 16, 32), (2, 12, 16, 16), 2 * 12 * 16 * 32 * 16),
        ((), (4,), None),
        ((-1, 4), (4, 4), None),
    ],
)
def test_products(first: tuple[int, ...], output: tuple[int, ...], expected: int | None) -> None:
    assert product_macs(first, output) == expected


@pytest.mark.parametrize(
    ("weights", "output", "expected"),
    [
        ((64, 3, 7, 7), (1, 64, 112, 112), 64 * 112 * 112 * 147),
        ((64, 1, 3, 3), (1, 64, 7, 7), 64 * 49 * 9),
        ((4, 16, 8, 3, 3), (1, 64, 7, 7), 64 * 49 * 72),
        ((64,), (1, 64, 7, 7), None),
        ((64, 3), (1, 64), None),
    ],
)
def test_convolutions(
    weights: tuple[int, ...], output: tuple[int, ...], expected: int | None
) -> None:
    assert convolution_macs(weights, output) == expected
