"""The transparency log, as far as it is arithmetic: trees, proofs, signed notes, tiles.

Whoever keeps a log and whoever distrusts it use the same functions; nothing here reads a file, a
clock or a socket.
"""
