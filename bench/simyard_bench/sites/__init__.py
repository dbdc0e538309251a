"""What sites cost: ``make bench-sites``; ``bench-plot`` and ``bench-check`` look at its results, too."""
