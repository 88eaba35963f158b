"""The MobileNetV3-Large image classification network."""
