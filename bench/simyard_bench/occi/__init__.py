"""What OCCI frontends cost: ``make bench-occi``; ``bench-plot`` and ``bench-check`` look at its results, too."""
