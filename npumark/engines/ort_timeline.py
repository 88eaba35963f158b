"""How much of a call a provider that works behind it can have had, by the profile's own clock.

The kernels of such a provider are timed while they are queued, and its device works while other
kernels of the same call run. What is left to go by is the clock: between two of the provider's
own kernels there is nothing but waiting for it, or other providers' work. A stretch that holds a
kernel of another provider is counted as that other's from end to end: its kernel, the runtime's
gaps around it, and whatever the device did meanwhile. So the share errs low, within the
microsecond that the profile's times are cut to. A call without a kernel of the provider's own is
one such stretch, and its share is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from npumark.engines.ort_profile import Kernel, Profile, Span

_CUT = 2
"""Microseconds that a kernel may seem to begin after its call's end, both times being cut."""


def share_of_calls(profile: Profile, own: str) -> tuple[float | None, str | None]:
    """Return the share of the calls' time that was the provider's, 0 to 1, or null and why."""
    whole = sum(call.microseconds for call in profile.calls)
    if whole <= 0:
        return None, "the profile does not say how long the calls lasted"
    by_call: list[list[Kernel]] = [[] for _ in profile.calls]
    for kernel in profile.kernels:
        at = _call_of(kernel, profile.calls)
        if at is None:
            return None, "the profile has kernels outside of the calls that it holds"
        by_call[at].append(kernel)
    pairs = zip(profile.calls, by_call, strict=True)
    return 1 - sum(_others(call, kernels, own) for call, kernels in pairs) / whole, None


def _call_of(kernel: Kernel, calls: Sequence[Span]) -> int | None:
    """Return the index of the last call that began before the kernel, null if it was over."""
    begun = [at for at, call in enumerate(calls) if call.start <= kernel.span.start]
    last = max(begun, key=lambda at: calls[at], default=None)
    return last if last is not None and kernel.span.start <= calls[last].end + _CUT else None


def _others(call: Span, kernels: Sequence[Kernel], own: str) -> int:
    """Return the microseconds of a call that are not the provider's."""
    mine = [kernel.span for kernel in kernels if kernel.provider == own]
    others = [kernel.span for kernel in kernels if kernel.provider != own]
    lost = [
        Span(start, end - start)
        for start, end in _between(call, mine)
        if any(other.start <= end and other.end >= start for other in others)
    ]
    return _covered([*lost, *others], call)


def _between(call: Span, mine: Iterable[Span]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of every stretch of a call outside of the provider's own kernels."""
    at = call.start
    for span in sorted(mine):
        if span.start > at:
            yield at, span.start
        at = max(at, span.end)
    if call.end > at:
        yield at, call.end


def _covered(spans: Iterable[Span], call: Span) -> int:
    """Return how many microseconds of a call any of the spans covers."""
    covered, at = 0, call.start
    for span in sorted(spans):
        start, end = max(at, span.start), min(span.end, call.end)
        if end > start:
            covered += end - start
            at = end
    return covered
