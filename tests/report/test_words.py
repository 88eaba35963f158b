from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.report import words
from npumark.report.charts import bar


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (math.nan, "—"),
        (math.inf, "—"),
        (0.0, "0"),
        (0.83, "0.830"),
        (0.0421, "0.0421"),
        (12.34, "12.3"),
        (412.6, "413"),
        (1087.4, "1,087"),
        (0.00000123, "1.23e-06"),
        (-3.25, "-3.25"),
        (1e300, "1.00e+300"),
    ],
)
def test_figures_have_three_digits_and_what_is_unknown_a_dash(
    value: float | None, text: str
) -> None:
    assert words.figure(value) == text


def test_a_number_of_no_machine_fills_no_page() -> None:
    assert words.percent(1e300) == "1.00e+302 %"
    assert words.percent(12.0) == "1200 %"
    assert words.tops(1e300) == "1.00e+300"
    assert words.tops(49.34) == "49.3"


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_a_figure_is_within_half_a_percent_of_its_value(value: float) -> None:
    assert float(words.figure(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "—"), (0.44, "0.4 s"), (38.2, "38 s"), (99.6, "2 min"), (4800.0, "1 h 20 min")],
)
def test_durations_read_as_people_say_them(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


def test_sizes_are_decimal_and_a_dash_where_unknown() -> None:
    assert words.size(None) == "—"
    assert words.size(512) == "512 B"
    assert words.size(999) == "999 B"
    assert words.size(999_949) == "999.9 kB"
    assert words.size(999_950) == "1.0 MB"
    assert words.size(5 * 10**9) == "5.0 GB"


def test_a_margin_has_its_measure_sign_and_unit() -> None:
    assert words.margin("snr_db", 9.71, "dB") == "SNR +9.71 dB"
    assert words.margin("cosine_p10", -0.002, "") == "cosine p10 -0.002"
    assert words.margin("kl", None, "nat") == "—"


def test_a_peak_workload_reads_as_its_shape() -> None:
    assert words.shape("peak-512x2048x8") == "512×2048, 8 layers"
    assert words.shape("resnet50") == "resnet50"
    assert words.shape("peak-odd") == "peak-odd"


@given(st.floats(0, 1), st.integers(1, 60), st.booleans())
def test_a_bar_is_never_longer_than_its_share_nor_invisible(
    share: float, width: int, unicode: bool
) -> None:
    drawn = bar(share, width, unicode=unicode)
    whole = drawn.count("█") + drawn.count("#")
    assert len(drawn) <= width
    assert whole <= max(1, share * width)
    assert bool(drawn) == (share > 0)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        bar(share, 10, unicode=True)


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ("snr_db -1.32983 dB is below the bound 20 dB", "SNR -1.33 is below the bound of 20 dB"),
        ("snr_db 19.9961 dB is below the bound 20 dB", "SNR 19.996 is below the bound of 20 dB"),
        ("kl 0.512345 nat is above the bound 0.5 nat", "KL 0.512 is above the bound of 0.5 nat"),
        (
            "cosine_mean 0.5 is below the bound 0.99; flips 3 samples is above the bound 1 samples",
            "cosine mean 0.5 is below the bound of 0.99; flips 3 is above the bound of 1 samples",
        ),
        ("snr_db is not a finite number", "SNR is not a finite number"),
        ("the worker died: SIGSEGV", "the worker died: SIGSEGV"),
    ],
)
def test_reasons_are_written_as_people_write_them(recorded: str, said: str) -> None:
    assert words.plainly(recorded) == said
