"""Segmentation: per-pixel class scores, compared at the output's full resolution.

References may be stored before the network's last bilinear upsampling (a full map is a hundred
times larger); parameter ``reference_scale`` then names the integer factor, and the reference
is enlarged here exactly as the network does it: half-pixel centres, edges clamped. ``mu`` is
stored at the reference's resolution, or per class as [classes, 1, 1].

- ``miou``: mean over the classes with more than 1 % of the reference's pixels of
  intersection / union, over the whole eval set;
- ``miou_decisive``: the same over decisive pixels alone, those whose reference score leads the
  second by at least ``decisive_margin``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npumark.gates.accumulate import (
    Array,
    CosineAccumulator,
    Measures,
    cosine,
    required,
)

MIN_CLASS_SHARE = 0.01
"""A class with no more of the pixels than this says little, and moves the mean a lot."""


class Segmentation(CosineAccumulator):
    """Scores [classes, H, W] per sample."""

    names = (*CosineAccumulator.names, "miou", "miou_decisive")

    def __init__(
        self, references: Sequence[Array], mu: Sequence[Array], parameters: Mapping[str, float]
    ) -> None:
        super().__init__(references, mu, parameters)
        if self.references[0].ndim != 4:
            raise ValueError("segmentation references must have the shape [n, classes, H, W]")
        self.margin = required(parameters, "decisive_margin")
        self.scale = int(parameters.get("reference_scale", 1))
        _, self.classes, height, width = self.references[0].shape
        self._rows = Stretch(height, self.scale)
        self._columns = Stretch(width, self.scale)
        self._all = np.zeros((self.classes, self.classes), dtype=np.int64)
        self._decisive = np.zeros_like(self._all)

    def _shape(self, k: int) -> tuple[int, ...]:
        classes, height, width = self.references[k].shape[1:]
        return (classes, height * self.scale, width * self.scale)

    def _sample(self, i: int, outputs: list[Array]) -> None:
        stored = self.references[0][i].astype(np.float32)
        mean = self._mean(0)
        mu = None if mean is None else mean.astype(np.float32)
        pixels = stored.shape[1] * stored.shape[2] * self.scale**2
        ref_best = np.full(pixels, -np.inf, dtype=np.float32)
        ref_next = ref_best.copy()
        test_best = ref_best.copy()
        ref_label = np.zeros(pixels, dtype=np.int16)
        test_label = np.zeros_like(ref_label)
        sums = np.zeros(3)
        for c in range(self.classes):
            ref = self._enlarge(stored[c])
            # Interpolation weights sum to one, so the mean may be taken off before or after.
            sums += self._energy(ref, outputs[0][c], None if mu is None else self._enlarge(mu[c]))
            _lead(ref.reshape(-1), c, ref_best, ref_label, ref_next)
            _lead(outputs[0][c].reshape(-1), c, test_best, test_label, None)
        self._cosines.append(cosine(*sums.tolist()))
        pairs = ref_label.astype(np.intp) * self.classes + test_label
        self._all += self._count(pairs)
        self._decisive += self._count(pairs[ref_best - ref_next >= self.margin])

    def _finish(self) -> Measures:
        return {
            **super()._finish(),
            "miou": mean_iou(self._all),
            "miou_decisive": mean_iou(self._decisive),
        }

    def _enlarge(self, plane: Array) -> Array:
        if self.scale == 1:
            return plane
        if not np.ptp(plane):
            return np.full([side * self.scale for side in plane.shape], plane[0, 0])
        # Columns first: there the plane is still small, and rows are contiguous to copy.
        return self._rows(self._columns(plane.T).T)

    def _count(self, pairs: Array) -> Array:
        counts = np.bincount(pairs, minlength=self.classes**2)
        return counts.reshape(self.classes, self.classes)


class Stretch:
    """Bilinear enlargement of the first axis by an integer factor.

    Half-pixel centres, edges clamped: ONNX Resize (linear, half_pixel), PyTorch with
    align_corners False. Plain elementwise arithmetic: the threads of a linear algebra library
    would compete with the runtime's own.
    """

    def __init__(self, size: int, factor: int) -> None:
        at = np.clip((np.arange(size * factor) + 0.5) / factor - 0.5, 0, size - 1)
        self._low = np.floor(at).astype(np.intp)
        self._high = np.minimum(self._low + 1, size - 1)
        self._share = (at - self._low)[:, None].astype(np.float32)

    def __call__(self, x: Array) -> Array:
        """Return float32 [size * factor, m] of x, float32 [size, m]."""
        low = x[self._low]
        high = x[self._high]
        high -= low
        high *= self._share
        high += low
        return high


def mean_iou(confusion: Array) -> float | None:
    """Return the mean IoU of a confusion matrix [reference, test] of pixel counts.

    Classes with at most MIN_CLASS_SHARE of the reference's pixels are left out; null where
    none remains.
    """
    reference = confusion.sum(axis=1)
    kept = np.flatnonzero(reference > MIN_CLASS_SHARE * max(1, int(reference.sum())))
    if kept.size == 0:
        return None
    both = confusion.diagonal()
    union = reference + confusion.sum(axis=0) - both
    return float((both[kept] / union[kept]).mean())


def _lead(plane: Array, label: int, best: Array, labels: Array, second: Array | None) -> None:
    """Let class ``label`` take the pixels where it leads; ties stay with the lower class."""
    leads = plane > best
    if second is not None:
        np.maximum(second, np.minimum(plane, best), out=second)
    np.copyto(labels, label, where=leads)
    np.maximum(best, plane, out=best, casting="same_kind")
