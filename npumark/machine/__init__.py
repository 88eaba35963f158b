"""The machine: processors, limits, preconditions; read only, changed never."""
