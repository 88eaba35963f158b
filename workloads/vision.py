"""Builds the vision networks: calibrate, fit the head, choose eval pictures, reference outputs.

The two classifiers share one eval set, chosen from candidate crops by how decisive both are:
samples whose answer hangs on rounding say nothing about a runtime. The segmentation network
has larger pictures of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from npumark.pack.pixels import encode_u8
from workloads import heads, quantise
from workloads.calibrate import Calibration
from workloads.constants import TensorConstants
from workloads.deeplabv3_mobilenet_v3_large import definition as deeplab
from workloads.deeplabv3_mobilenet_v3_large import recipe as deeplab_recipe
from workloads.gains import Recipe
from workloads.graph import Graph, Node
from workloads.mobilenet_v3_large import definition as mobilenet
from workloads.mobilenet_v3_large import recipe as mobilenet_recipe
from workloads.package import EvalInput, Network
from workloads.photographs import Crop, PictureSet, gather, sources
from workloads.reference import Interpreter, centred_pixels
from workloads.resnet50 import definition as resnet
from workloads.resnet50 import recipe as resnet_recipe

CLASSIFIERS: tuple[tuple[ModuleType, Recipe], ...] = (
    (mobilenet, mobilenet_recipe.RECIPE),
    (resnet, resnet_recipe.RECIPE),
)

CALIBRATION_CROPS, FIT_CROPS, CANDIDATE_CROPS = 6, 24, 8
"""Crops per photograph for the classifiers."""
EVAL_SAMPLES, SURE_PER_PHOTOGRAPH = 32, 4
SEGMENT_CALIBRATION_CROPS = 2
SEGMENT_EVAL_CROPS = (1, 2, 2, 2, 2, 2, 1)
"""Crops per evaluation photograph for the segmentation network: textures once."""
SEGMENT_CLASSES = 8
DECISIVE_MARGIN = 1.0
SEEDS = {"calibration": 1, "candidates": 2, "fit": 3, "segment": 4, "segment_eval": 5, "centres": 1}
BATCH = 8

Array = npt.NDArray[Any]
Pixels = npt.NDArray[np.uint8]


@dataclass
class Calibrated:
    """A network whose weights are final."""

    graph: Graph
    constants: dict[str, TensorConstants]
    values: dict[str, npt.NDArray[np.float32]]

    @property
    def head(self) -> Node:
        return next(node for node in self.graph.nodes if node.role == "head")

    def adopt(self, constants: Sequence[TensorConstants]) -> None:
        """Take over further tensors and their values."""
        for tensor in constants:
            self.constants[tensor.weight.name] = tensor
            self.values[tensor.weight.name] = tensor.value(self.graph.workload)

    def tensor(self, pixels: Pixels, name: str, precision: str = "float32") -> Array:
        """One tensor for many pictures, [n, ...], computed in small batches."""
        runner = Interpreter(self.graph, self.values, precision)
        (x,) = self.graph.inputs
        parts = [
            runner.run({x: centred_pixels(pixels[i : i + BATCH])}, upto=name)[name].numpy()
            for i in range(0, len(pixels), BATCH)
        ]
        return np.concatenate(parts)


def calibrated(graph: Graph, recipe: Recipe, pixels: Pixels) -> tuple[Calibrated, Array]:
    """Fix every layer but the head; also return the head's input for the pictures."""
    calibration = Calibration(graph, recipe)
    features = calibration.run(centred_pixels(pixels)).double().numpy()
    made = Calibrated(graph, {}, {})
    made.adopt(list(calibration.constants.values()))
    return made, features


def classifiers(folder: Path) -> list[Network]:
    """Build MobileNetV3-Large and ResNet-50 from the photographs in ``folder``."""
    size = mobilenet.RESOLUTION
    calibration = _pictures(folder, "calibration", size, CALIBRATION_CROPS, "calibration")
    fit = _pictures(folder, "calibration", size, FIT_CROPS, "fit")
    candidates = _pictures(folder, "evaluation", size, CANDIDATE_CROPS, "candidates")
    names = list(dict.fromkeys(crop.photograph for crop in fit.crops))
    labels = np.array([names.index(crop.photograph) for crop in fit.crops])
    made = []
    for module, recipe in CLASSIFIERS:
        network, _ = calibrated(module.build(), recipe, calibration.pixels)
        features = network.tensor(fit.pixels, network.head.inputs[0]).astype(np.float64)
        network.adopt(heads.classifier(network.graph, network.head, features, labels))
        made.append(network)
    logits = [network.tensor(candidates.pixels, network.head.name) for network in made]
    sure = np.min([margins(array) for array in logits], axis=0)
    chosen = most_decisive(sure, candidates.crops)
    pixels = candidates.pixels[chosen]
    eval_input = _eval_input(pixels, f"vision{size}/eval.u8")
    networks = []
    for network, (module, _) in zip(made, CLASSIFIERS, strict=True):
        ranges = quantise.vision(network.graph, network.values, centred_pixels(calibration.pixels))
        name = network.head.name
        mean = network.tensor(calibration.pixels, name).mean(axis=0, dtype=np.float64)
        networks.append(
            Network(
                graph=network.graph,
                title=module.TITLE,
                task="classification",
                published=published(module),
                params=network.graph.parameters(),
                constants=network.constants,
                quantisation=ranges,
                inputs=[eval_input],
                references={"logits": network.tensor(pixels, name, "float64")},
                means={"logits": mean},
                parameters={"decisive_margin": DECISIVE_MARGIN},
                emulated=_emulation(network, eval_input),
            )
        )
    return networks


def segmenter(folder: Path) -> Network:
    """Build DeepLabV3-MobileNetV3 from the photographs in ``folder``."""
    size = deeplab.RESOLUTION
    calibration = _pictures(folder, "calibration", size, SEGMENT_CALIBRATION_CROPS, "segment")
    evaluation = gather(folder, "evaluation", size, SEGMENT_EVAL_CROPS, SEEDS["segment_eval"])
    network, features = calibrated(deeplab.build(), deeplab_recipe.RECIPE, calibration.pixels)
    by_pixel = features.transpose(0, 2, 3, 1).reshape(-1, features.shape[1])
    network.adopt(
        heads.segmenter(network.graph, network.head, by_pixel, SEGMENT_CLASSES, SEEDS["centres"])
    )
    ranges = quantise.vision(network.graph, network.values, centred_pixels(calibration.pixels))
    eval_input = _eval_input(evaluation.pixels, f"vision{size}/eval.u8")
    name = network.head.name
    return Network(
        graph=network.graph,
        title=deeplab.TITLE,
        task="segmentation",
        published=published(deeplab),
        params=deeplab.build(auxiliary=True).parameters(),
        constants=network.constants,
        quantisation=ranges,
        inputs=[eval_input],
        references={"logits": network.tensor(evaluation.pixels, name, "float64")},
        means={"logits": network.tensor(calibration.pixels, name).mean(axis=0, dtype=np.float64)},
        parameters={
            "decisive_margin": DECISIVE_MARGIN,
            "reference_scale": size / network.graph.shapes[name][-1],
        },
        emulated=_emulation(network, eval_input),
    )


def margins(logits: Array) -> Array:
    """Lead of the first class over the second, [n]."""
    ordered = np.sort(logits, axis=1)
    return np.asarray(ordered[:, -1] - ordered[:, -2])


def most_decisive(sure: Array, crops: Sequence[Crop]) -> npt.NDArray[np.intp]:
    """Choose eval samples: the surest of every photograph, then the surest of the rest.

    Returns EVAL_SAMPLES ascending indices.
    """
    order = np.argsort(-sure, kind="stable")
    taken: Mapping[str, list[int]] = {crop.photograph: [] for crop in crops}
    for index in order:
        own = taken[crops[index].photograph]
        if len(own) < SURE_PER_PHOTOGRAPH:
            own.append(int(index))
    chosen = [index for own in taken.values() for index in own]
    rest = [int(index) for index in order if index not in chosen]
    return np.sort(np.array(chosen + rest[: EVAL_SAMPLES - len(chosen)], dtype=np.intp))


def published(module: ModuleType) -> dict[str, Any]:
    """What the literature says of the network, for comparison with our counts."""
    return {
        "macs": module.PUBLISHED_MACS,
        "params": module.PUBLISHED_PARAMETERS,
        "source": "torchvision",
    }


def _pictures(folder: Path, use: str, size: int, each: int, seed: str) -> PictureSet:
    count = sum(photograph.use == use for photograph in sources())
    hues = seed in ("calibration", "segment")
    return gather(folder, use, size, [each] * count, SEEDS[seed], hues=hues)


def _eval_input(pixels: Pixels, path: str) -> EvalInput:
    return EvalInput("x", path, pixels, "u8-centred", encode_u8(pixels))


def _emulation(network: Calibrated, eval_input: EvalInput) -> Any:
    runner = Interpreter(network.graph, network.values, "float16")

    def outputs(index: int) -> Sequence[Array]:
        live = runner.outputs({eval_input.name: eval_input.sample(index, np.float32)})
        return list(live.values())

    return outputs
