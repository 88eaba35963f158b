"""Which number format an ONNX Runtime provider multiplied in, for every provider.

The types of a kernel's inputs are honest where ONNX Runtime itself computes: on its CPU provider.
Another provider's kernel may compute in another format than its inputs have (TF32 from FP32), and
a compiled part of a graph shows no kernels at all. Then:

- floating point is asked of the provider itself, by a small product with the same options on the
  same device (number_probe);
- integers are believed where the provider shows that it multiplied them: by the name of its
  primitives, because it executed no dequantiser between the operators that multiply, or by the
  exact sums of a product of its own (integer_probe). Operands that were dequantised outside of
  the provider's part arrive as floating point, whatever the graph says;
- what nothing tells is null, with the reason.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines import openvino_evidence
from npumark.engines.base import Array, LoadRequest
from npumark.engines.catalogue import Provider
from npumark.engines.formats import Formats, Work, weigh
from npumark.engines.integer_probe import integer_input, integer_model, multiplied_integers
from npumark.engines.number_probe import Verdict, classify, probe_model, product
from npumark.engines.onnx_graph import PRODUCTS, Product
from npumark.engines.ort_evidence import MULTIPLYING, Evidence, read_assignment
from npumark.engines.ort_profile import FLOAT_MACS, MULTIPLIES, formats
from npumark.engines.ort_session import CPU, open_session
from npumark.errors import EngineError

Ask = Callable[[str], Verdict]
"""Type of a graph's inputs and outputs -> the format in which the provider multiplies such."""

AskIntegers = Callable[[], bool | None]
"""Whether the provider multiplies 8-bit operands as integers; null where that stays open."""

_ACTIVATIONS = {"int8-u8s8": "uint8", "int8-s8s8": "int8", "int8-sym": "int8"}
"""Encoding -> type of its quantised activations, for those of 8 bits."""

_PROFILE_TYPES = {"float": "float32", "float16": "float16"}


@dataclass(frozen=True, slots=True)
class Numbers:
    """``formats`` with the verdicts of the small product that it rests on, by type."""

    formats: Formats
    probed: dict[str, Verdict]
    integers: bool | None = None


def read_numbers(
    evidence: Evidence, row: Provider, declared: str, ask: Ask, ask_integers: AskIntegers
) -> Numbers:
    """Return which format did the multiplying. ``declared`` is the family that was asked for."""
    if row.provider_name == CPU:
        return Numbers(formats(evidence.profile, declared), {})
    own, probed = str(row.provider_name), _Asked(ask, ask_integers)
    shown = [k for k in evidence.profile.kernels if k.provider == own and k.op in MULTIPLIES]
    layers = [i for i in evidence.profile.inner if i.provider == own]
    if shown:
        found = _by_kernels(evidence, own, declared, probed)
    elif any(openvino_evidence.multiplies(layer.kind) for layer in layers):
        found = openvino_evidence.formats(
            [
                openvino_evidence.Layer(layer.kind, layer.primitive, layer.microseconds)
                for layer in layers
            ],
            declared,
            dynamic_quantisation=0,
        )
    else:
        found = _by_operators(evidence, own, declared, probed)
    return Numbers(found, probed.verdicts, probed.integers)


def ask_provider(request: LoadRequest, row: Provider, io: str) -> Verdict:
    """Let the row's provider compute the small product, with the options of the request."""
    try:
        return classify(_answers(request, row, probe_model(io), product(io).x), io)
    except EngineError as fault:
        return Verdict(None, f"a small product could not be asked: {fault}"[:300])


def ask_provider_for_integers(request: LoadRequest, row: Provider) -> bool | None:
    """Let the row's provider compute sums of 8-bit products, quantised as the request's are.

    Null where it cannot be asked: no sum of 4096 products of 16 bits fits into 32.
    """
    if request.encoding not in _ACTIVATIONS:
        return None
    try:
        model = integer_model(_ACTIVATIONS[request.encoding])
        return multiplied_integers(_answers(request, row, model, integer_input()))
    except EngineError:
        return None


def _answers(request: LoadRequest, row: Provider, model: bytes, x: Array) -> list[Array]:
    """Return y and z of a model of input x, as the provider alone computes them.

    Raises EngineError where it cannot, or leaves a product to another.
    """
    with tempfile.TemporaryDirectory(prefix="npumark-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "asked.onnx"
        path.write_bytes(model)
        asked = replace(request, graph=path, cache_dir=None)
        try:
            session = open_session(asked, row)
            nodes, _ = read_assignment(session)
            answers = [np.asarray(y) for y in session.run(["y", "z"], {"x": x})]
        except EngineError:
            raise
        except Exception as fault:
            raise EngineError(" ".join(str(fault).split())) from fault
    if any(n.op in PRODUCTS for n in nodes or () if n.provider != row.provider_name):
        raise EngineError("it did not run on the provider alone")
    return answers


class _Asked:
    """Asks once per type, and gives an unknown a name that no family has."""

    def __init__(self, ask: Ask, ask_integers: AskIntegers) -> None:
        self._ask, self._ask_integers = ask, ask_integers
        self._known = False
        self.integers: bool | None = None
        self.verdicts: dict[str, Verdict] = {}

    def integer_family(self) -> str:
        if not self._known:
            self._known, self.integers = True, self._ask_integers()
        if self.integers is None:
            return "?the provider does not tell whether it multiplied integers"
        return "INT8" if self.integers else self.family("float32")

    def family(self, io: str) -> str:
        if io not in self.verdicts:
            askable = io in _PROFILE_TYPES.values()
            why = f"no small product asks for {io}"
            self.verdicts[io] = self._ask(io) if askable else Verdict(None, why)
        verdict = self.verdicts[io]
        return verdict.family or f"?{verdict.why}"


def _by_kernels(evidence: Evidence, own: str, declared: str, asked: _Asked) -> Formats:
    """Read each kernel's types, with floating point as the provider computes it."""
    told = {}
    for kernel in evidence.profile.kernels:
        kind = kernel.inputs[0][0] if kernel.inputs else ""
        if kernel.provider == own and kernel.op in FLOAT_MACS and kind in _PROFILE_TYPES:
            told[own, kind] = asked.family(_PROFILE_TYPES[kind])
    return _known(formats(evidence.profile, declared, told))


def _by_operators(evidence: Evidence, own: str, declared: str, asked: _Asked) -> Formats:
    """Let every operator that multiplies vote once, in a graph whose kernels are hidden.

    An operator that the optimiser renamed before it went elsewhere is still counted among the
    hidden ones, which are therefore scaled to as many as the provider was given.
    """
    if evidence.assigned is None:
        return Formats(None, evidence.unlisted, {}, "operators", {})
    elsewhere = {n.name for n in evidence.assigned if n.provider != own and n.name}
    counts: Counter[str] = Counter()
    families: Counter[str] = Counter()
    hidden = [part for part in evidence.graph.products if part.name not in elsewhere]
    given = sum(1 for node in evidence.given(own) if node.op in MULTIPLYING) or len(hidden)
    for part in hidden:
        family = _family(part, evidence, elsewhere, asked)
        families[family] += min(given, len(hidden))
        counts[f"{part.op}({family.lstrip('?')})"] += 1
    kernels = evidence.profile.kernels
    for kernel in kernels[: len(kernels) // max(1, evidence.profile.runs)]:
        if kernel.provider != own and kernel.op in MULTIPLIES:
            alone = replace(evidence.profile, kernels=(kernel,), runs=1)
            ran = formats(alone, declared).ran or "?a kernel elsewhere does not tell its type"
            families[ran] += max(1, len(hidden))
            counts[f"{kernel.op}({ran.lstrip('?')} by {kernel.provider})"] += 1
    votes = [Work(family, 0, times) for family, times in families.items()]
    return _known(replace(weigh(votes, dict(sorted(counts.items()))), by="operators"))


def _family(part: Product, evidence: Evidence, elsewhere: set[str], asked: _Asked) -> str:
    """Return the family of one hidden operator, or ``?`` and why it is not known."""
    if part.operands == "float":
        return asked.family(evidence.graph.float_type or "float32")
    if elsewhere & set(part.dequantisers):
        # Its operand arrives dequantised: floating point is what is multiplied.
        return asked.family("float32")
    if part.operands == "weights":
        return "?the provider does not tell how it multiplied weights stored in few bits"
    told = evidence.qnn
    if told is None or not told.accelerated:
        return asked.integer_family()
    return asked.family("float32") if set(told.cycles) & set(part.dequantisers) else "INT8"


def _known(found: Formats) -> Formats:
    share: dict[str, float] = {}
    for family, part in found.share.items():
        name = "unknown" if family.startswith("?") else family
        share[name] = share.get(name, 0.0) + part
    told = replace(found, share=share)
    if found.ran is not None and found.ran.startswith("?"):
        return told.unknown(found.ran.removeprefix("?"))
    return told


def summary(numbers: Numbers) -> dict[str, Any]:
    """Return the small products' verdicts for the record."""
    told: dict[str, Any] = {
        io: {
            "family": verdict.family,
            "why": verdict.why,
            "accumulator": verdict.accumulator,
        }
        for io, verdict in sorted(numbers.probed.items())
    }
    return told if numbers.integers is None else told | {"int8": numbers.integers}
