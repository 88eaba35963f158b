"""DeepLabV3 (Chen et al. 2017) on a dilated MobileNetV3-Large, 21 classes, full-size output.

The auxiliary training head is part of the published parameter count and never runs; it is
built only on request, for the count.
"""

from __future__ import annotations

from workloads.graph import Graph
from workloads.mobilenet_v3_large.definition import backbone

WORKLOAD = "deeplabv3_mobilenet_v3_large"
TITLE = "DeepLabV3-MobileNetV3-Large"
RESOLUTION = 512
PUBLISHED_RESOLUTION = 520
CLASSES = 21
PUBLISHED_PARAMETERS = 11_029_328
PUBLISHED_MACS = "10.436 G at 520x520 without the auxiliary head"

WIDTH = 256
RATES = (12, 24, 36)


def pyramid(g: Graph, x: str) -> str:
    """Atrous spatial pyramid pooling: 1x1, three dilated 3x3, the pooled image; projected."""
    _, _, height, width = g.shapes[x]
    with g.block("aspp", x):
        branches = [g.activation(g.conv(x, "aspp.point", WIDTH, 1), "aspp.point_relu", "relu")]
        for rate in RATES:
            y = g.conv(x, f"aspp.rate{rate}", WIDTH, 3, dilation=rate, role="dilated")
            branches.append(g.activation(y, f"aspp.rate{rate}_relu", "relu"))
        y = g.global_pool(x, "aspp.pool")
        y = g.conv(y, "aspp.pooled", WIDTH, 1, role="pooled")
        y = g.activation(y, "aspp.pooled_relu", "relu")
        branches.append(g.resize(y, "aspp.pooled_up", height, width))
        y = g.concat(branches, "aspp.concat", 1)
        y = g.conv(y, "aspp.project", WIDTH, 1)
        return g.activation(y, "aspp.project_relu", "relu")


def build(resolution: int = RESOLUTION, *, auxiliary: bool = False) -> Graph:
    """Return the network: x [1, 3, r, r] -> logits [1, 21, r, r]."""
    g = Graph(WORKLOAD)
    x = g.input("x", (1, 3, resolution, resolution))
    features, low = backbone(g, x, dilated=True)
    y = pyramid(g, features)
    y = g.conv(y, "fuse", WIDTH, 3, role="centred")
    y = g.activation(y, "fuse_relu", "relu")
    y = g.conv(y, "head", CLASSES, 1, norm=False, role="head")
    g.output("logits", g.resize(y, "logits_up", resolution, resolution))
    if auxiliary:
        z = g.conv(low, "aux", 10, 3)
        z = g.activation(z, "aux_relu", "relu")
        g.conv(z, "aux_head", CLASSES, 1, norm=False)
    return g
