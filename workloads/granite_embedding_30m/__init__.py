"""Granite Embedding 30M: sentence embeddings by a six-layer RoBERTa encoder."""
