"""How fast pools start, what that costs, and how it compares: ``make bench-start``, ``bench-plot``, ``bench-check``."""
