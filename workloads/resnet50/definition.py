"""ResNet-50 v1.5: bottlenecks 3, 4, 6, 3 (He et al. 2016), stride in the 3x3 convolution."""

from __future__ import annotations

from workloads.graph import Graph

WORKLOAD = "resnet50"
TITLE = "ResNet-50"
RESOLUTION = 224
CLASSES = 1000
PUBLISHED_PARAMETERS = 25_557_032
PUBLISHED_MACS = "4.089 G"

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4


def bottleneck(g: Graph, x: str, name: str, width: int, stride: int) -> str:
    """1x1, 3x3, 1x1, plus the shortcut (projected where the shape changes), then ReLU."""
    out = width * EXPANSION
    with g.block(name, x):
        y = g.conv(x, f"{name}.conv1", width, 1)
        y = g.activation(y, f"{name}.relu1", "relu")
        y = g.conv(y, f"{name}.conv2", width, 3, stride=stride)
        y = g.activation(y, f"{name}.relu2", "relu")
        y = g.conv(y, f"{name}.conv3", out, 1, role="branch")
        shortcut = x
        if stride != 1 or g.shapes[x][1] != out:
            shortcut = g.conv(x, f"{name}.project", out, 1, stride=stride, role="shortcut")
        y = g.add(y, shortcut, f"{name}.add")
        return g.activation(y, f"{name}.relu3", "relu")


def build(resolution: int = RESOLUTION) -> Graph:
    """Return the classifier: x [1, 3, r, r] -> logits [1, 1000]."""
    g = Graph(WORKLOAD)
    x = g.input("x", (1, 3, resolution, resolution))
    x = g.conv(x, "stem", 64, 7, stride=2)
    x = g.activation(x, "stem_relu", "relu")
    x = g.max_pool(x, "stem_pool", 3, 2, 1)
    for stage, (width, count) in enumerate(STAGES):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            x = bottleneck(g, x, f"stage{stage}.{index}", width, stride)
    x = g.global_pool(x, "pool")
    x = g.reshape(x, "flat", (1, g.shapes[x][1]))
    x = g.dense(x, "head", CLASSES, role="head")
    g.output("logits", x)
    return g
