"""The peak chains: x[S, D] through L layers of (linear D -> D, ReLU)."""
