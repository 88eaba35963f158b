"""The results server: takes signed records, recomputes them, logs and shows them."""
