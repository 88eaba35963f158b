"""The DeepLabV3-MobileNetV3-Large segmentation network."""
