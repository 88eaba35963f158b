"""Measures of a task over its whole eval set, accumulated sample by sample.

``accumulator(task, references, mu, parameters)`` returns an :class:`Accumulator`; the worker
adds each sample's outputs in place (nothing of them is kept) and asks for the result at the
end. Measures, by name:

- ``snr_db``: 10 log10 of sum (ref - mu)^2 / sum (ref - test)^2 over the whole set, of the
  network's first output; an exact match is SNR_CAP_DB;
- ``cosine_mean``, ``cosine_p10``: of the cosines between ref - mu and test - mu, one per sample;
- ``kl``, ``flips``, ``decisive`` (classification): see :mod:`npumark.gates.classification`;
- ``miou``, ``miou_decisive`` (segmentation): see :mod:`npumark.gates.segmentation`;
- ``token_cosine``, ``token_cosine_p10``, ``recall_at_1`` (embedding): see
  :mod:`npumark.gates.embedding`;
- ``chain`` (the peak test): ``snr_db`` alone.

Anything wrong with the outputs (NaN, infinity, a wrong shape or type, zeros only, a missing
sample) makes every measure null, and the reason says which output of which sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npumark.gates.accumulate import Accumulator, Array
from npumark.gates.classification import Classification
from npumark.gates.embedding import Embedding
from npumark.gates.segmentation import Segmentation

_TASKS: dict[str, type[Accumulator]] = {
    "chain": Accumulator,
    "classification": Classification,
    "segmentation": Segmentation,
    "embedding": Embedding,
}


def accumulator(
    task: str,
    references: Sequence[Array],
    mu: Sequence[Array],
    parameters: Mapping[str, float],
) -> Accumulator:
    """Return an accumulator for one pass over a workload's eval set.

    ``task`` is the workload's (pack.manifest.Task). ``references`` and ``mu`` are the eval
    set's arrays in the manifest's order (``mu`` may be empty: about zero); memory-mapped ones
    are read one sample at a time. ``parameters`` are the eval set's. Raises ValueError on an
    unknown task, or where references or parameters do not fit the task.
    """
    if task not in _TASKS:
        raise ValueError(f"unknown task {task!r}; there are {', '.join(_TASKS)}")
    return _TASKS[task](references, mu, parameters)
