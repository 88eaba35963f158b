"""MobileNetV3-Large, after table 1 of Howard et al. 2019 and torchvision's parameter counts.

The backbone is shared with DeepLabV3, which runs its last three blocks with dilation 2
instead of stride 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from workloads.graph import Graph

WORKLOAD = "mobilenet_v3_large"
TITLE = "MobileNetV3-Large"
RESOLUTION = 224
CLASSES = 1000
PUBLISHED_PARAMETERS = 5_483_032
PUBLISHED_MACS = "0.217 G"


@dataclass(frozen=True)
class Row:
    """One inverted residual block of the published table."""

    kernel: int
    expanded: int
    out: int
    gated: bool
    act: str
    stride: int


_RELU, _HARD = "relu", "hardswish"
ROWS = (
    Row(3, 16, 16, False, _RELU, 1),
    Row(3, 64, 24, False, _RELU, 2),
    Row(3, 72, 24, False, _RELU, 1),
    Row(5, 72, 40, True, _RELU, 2),
    Row(5, 120, 40, True, _RELU, 1),
    Row(5, 120, 40, True, _RELU, 1),
    Row(3, 240, 80, False, _HARD, 2),
    Row(3, 200, 80, False, _HARD, 1),
    Row(3, 184, 80, False, _HARD, 1),
    Row(3, 184, 80, False, _HARD, 1),
    Row(3, 480, 112, True, _HARD, 1),
    Row(3, 672, 112, True, _HARD, 1),
    Row(5, 672, 160, True, _HARD, 2),
    Row(5, 960, 160, True, _HARD, 1),
    Row(5, 960, 160, True, _HARD, 1),
)
FIRST_DILATED = 12
"""Index of the first row that the segmentation backbone dilates."""


def eighths(width: float) -> int:
    """Round to a multiple of eight, never losing more than a tenth (the published rule)."""
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded


def gate(g: Graph, x: str, name: str) -> str:
    """Squeeze-and-excitation: pool, two 1x1 convolutions, a hard sigmoid, a product."""
    channels = g.shapes[x][1]
    y = g.global_pool(x, f"{name}.pool")
    y = g.conv(y, f"{name}.squeeze", eighths(channels / 4), 1, norm=False, role="squeeze")
    y = g.activation(y, f"{name}.relu", "relu")
    y = g.conv(y, f"{name}.excite", channels, 1, norm=False, role="excite")
    y = g.activation(y, f"{name}.sigmoid", "hardsigmoid")
    return g.mul(x, y, f"{name}.mul")


def inverted_residual(g: Graph, x: str, name: str, row: Row, dilation: int) -> str:
    """Expand, depthwise, gate, project; with a shortcut where the shape allows it."""
    stride = 1 if dilation > 1 else row.stride
    shortcut = row.stride == 1 and g.shapes[x][1] == row.out
    with g.block(name, x):
        y = x
        if row.expanded != g.shapes[x][1]:
            y = g.conv(y, f"{name}.expand", row.expanded, 1)
            y = g.activation(y, f"{name}.expand_act", row.act)
        y = g.conv(
            y,
            f"{name}.depthwise",
            row.expanded,
            row.kernel,
            stride=stride,
            dilation=dilation,
            groups=row.expanded,
        )
        y = g.activation(y, f"{name}.depthwise_act", row.act)
        if row.gated:
            y = gate(g, y, f"{name}.gate")
        y = g.conv(y, f"{name}.project", row.out, 1, role="branch" if shortcut else "body")
        if shortcut:
            y = g.add(y, x, f"{name}.add")
    return y


def backbone(g: Graph, x: str, *, dilated: bool = False) -> tuple[str, str]:
    """Stem, fifteen blocks and the last 1x1 convolution; returns (features, C2 features).

    C2 is the input of the first dilated block's depthwise stage, which torchvision's
    auxiliary head reads: the 40-channel output of row 5.
    """
    x = g.conv(x, "stem", 16, 3, stride=2)
    x = g.activation(x, "stem_act", _HARD)
    low = x
    for index, row in enumerate(ROWS):
        dilation = 2 if dilated and index >= FIRST_DILATED else 1
        x = inverted_residual(g, x, f"block{index}", row, dilation)
        if index == 5:
            low = x
    x = g.conv(x, "last", 6 * ROWS[-1].out, 1)
    return g.activation(x, "last_act", _HARD), low


def build(resolution: int = RESOLUTION) -> Graph:
    """Return the classifier: x [1, 3, r, r] -> logits [1, 1000]."""
    g = Graph(WORKLOAD)
    x = g.input("x", (1, 3, resolution, resolution))
    x, _ = backbone(g, x)
    x = g.global_pool(x, "pool")
    x = g.reshape(x, "flat", (1, g.shapes[x][1]))
    x = g.dense(x, "hidden", 1280, role="wide")
    x = g.activation(x, "hidden_act", _HARD)
    x = g.dense(x, "head", CLASSES, role="head")
    g.output("logits", x)
    return g
