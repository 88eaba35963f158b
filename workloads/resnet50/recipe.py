"""Gains of ResNet-50; the reasons and the measurements are in DATASHEET.md."""

from workloads.gains import Gain, Recipe

RECIPE: Recipe = {
    "body": Gain(1.0, 1.0),
    "branch": Gain(0.5),
    "shortcut": Gain(1.0),
}
