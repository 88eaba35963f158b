"""The ResNet-50 image classification network."""
