"""Gains of DeepLabV3-MobileNetV3; the reasons and the measurements are in DATASHEET.md."""

from workloads.gains import Gain, Recipe

RECIPE: Recipe = {
    "body": Gain(1.0, 1.0),
    "branch": Gain(1.0),
    "squeeze": Gain(1.0, 0.5, layerwise=True),
    "excite": Gain(1.0, 0.0, layerwise=True),
    "dilated": Gain(0.5, 0.5, centre=4),
    "pooled": Gain(0.75, 0.0, layerwise=True),
    "centred": Gain(1.0, 1.0, centre=4),
}
