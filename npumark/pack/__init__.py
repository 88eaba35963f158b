"""The workload pack: recipes and hashes that ship, files that the first run materialises."""
