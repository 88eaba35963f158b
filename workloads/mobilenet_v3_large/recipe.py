"""Gains of MobileNetV3-Large; the reasons and the measurements are in DATASHEET.md."""

from workloads.gains import Gain, Recipe

RECIPE: Recipe = {
    "body": Gain(1.0, 1.0),
    "branch": Gain(0.5),
    "squeeze": Gain(1.0, 0.5, layerwise=True),
    "excite": Gain(1.0, 1.0, layerwise=True),
    "wide": Gain(1.0, 0.0, layerwise=True),
}
