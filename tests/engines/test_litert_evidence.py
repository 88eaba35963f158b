"""What LiteRT's profile proves, from summaries as the runtime writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from npumark.engines.litert_evidence import (
    Kernel,
    accelerated_percent,
    family,
    formats,
    kernels,
    on_accelerator,
    on_cpu,
)

SUMMARY = Path(__file__).with_name("litert_summary.txt").read_text(encoding="utf-8")


def test_a_summary_lists_each_kernel_once_with_its_time() -> None:
    assert kernels(SUMMARY) == [
        Kernel("Convert (NC)", True, 69),
        Kernel("Fully Connected (NC, QS8, QC8W) GEMM", True, 93),
        Kernel("Fully Connected (NC, QD8, F32, QC8W) GEMM", True, 12),
        Kernel("HARD_SWISH", False, 90),
    ]


@pytest.mark.parametrize("summary", ["", "Run Order", SUMMARY.replace("[avg ms]", "").lower()])
def test_another_text_lists_nothing(summary: str) -> None:
    assert kernels(summary) == []


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("Fully Connected (NC, F32) GEMM", "FP32"),
        ("Fully Connected (NC, PF32) GEMM", "FP32"),
        ("Convolution (NHWC, F32) IGEMM", "FP32"),
        ("Convolution (NHWC, F16) DWConv", "FP16"),
        ("Fully Connected (NC, BF16, F32) GEMM", "BF16"),
        ("Fully Connected (NC, QS8, QC8W) GEMM", "INT8"),
        ("Fully Connected (NC, QS8) GEMM", "INT8"),
        ("Fully Connected (NC, QU8) GEMM", "INT8"),
        ("Fully Connected (NC, QD8, F32, QC8W) GEMM", "INT8"),
        ("Fully Connected (NC, QP8, F32, QC8W) GEMM", "INT8"),
        ("Convolution (NHWC, QC8) DWConv", "INT8"),
        ("Convolution (NHWC, QD8, F32, QC8W) IGEMM", "INT8"),
        ("Fully Connected (NC, F32, QC8W) GEMM", "W8"),
        ("Fully Connected (NC, F32, QC4W) GEMM", "INT4"),
        ("Fully Connected (NC, QD8, F32, QC4W) GEMM", "INT4"),
        ("Fully Connected (NC, QD8, F32, QB4W) GEMM", "INT4"),
        ("Convert (NC)", None),
        ("Fully Connected (NC, X9) GEMM", None),
        ("FULLY_CONNECTED", None),
    ],
)
def test_a_kernel_is_named_after_what_it_multiplies(kernel: str, told: str | None) -> None:
    assert family(kernel) == told


def test_the_format_is_that_of_most_of_the_time() -> None:
    found = formats(kernels(SUMMARY))
    assert (found.ran, found.why) == ("INT8", None)
    assert sum(found.counts.values()) == 2


def test_float_kernels_that_took_longer_are_the_format() -> None:
    found = formats(
        [
            Kernel("Fully Connected (NC, QS8, QC8W) GEMM", True, 10),
            Kernel("Batch Matrix Multiply (NC, F32)", True, 30),
        ]
    )
    assert found.ran == "FP32"
    assert found.share == {"FP32": 0.75, "INT8": 0.25}


def test_an_operator_without_a_delegate_leaves_the_format_untold() -> None:
    found = formats(
        [Kernel("CONV_2D", False, 90), Kernel("Convolution (NHWC, QC8) IGEMM", True, 9)]
    )
    assert found.ran is None
    assert found.why == "the kernels' names do not tell their types"


def test_no_products_no_format() -> None:
    assert formats([Kernel("Convert (NC)", True, 5)]).ran is None


def test_what_the_delegates_left_is_counted_against_the_model() -> None:
    listed = kernels(SUMMARY)
    assert accelerated_percent(listed, 4, fully=False) == 75.0
    assert accelerated_percent(listed, 4, fully=True) == 100.0


@pytest.mark.parametrize(
    ("listed", "operators"),
    [([], 4), (kernels(SUMMARY), 0), ([Kernel("Convert (NC)", True, 5)], 4)],
    ids=["no profile", "no operators", "contradiction"],
)
def test_a_share_that_does_not_add_up_is_unknown(listed: list[Kernel], operators: int) -> None:
    assert accelerated_percent(listed, operators, fully=False) is None


def test_the_cpu_is_proved_by_what_its_profile_lists() -> None:
    assert (on_cpu(kernels(SUMMARY)).verdict, on_cpu(kernels(SUMMARY)).share) == ("proved", 1.0)
    nothing = on_cpu([])
    assert (nothing.verdict, nothing.share) == ("unproved", None)


def test_an_accelerator_is_proved_only_where_no_cpu_helps() -> None:
    assert on_accelerator(whole=True).share == 1.0
    helped = on_accelerator(whole=False)
    assert (helped.verdict, helped.share) == ("unproved", None)
    assert helped.why is not None
