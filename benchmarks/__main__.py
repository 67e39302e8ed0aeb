"""Measure, then write the page."""

from benchmarks import report, worst_case

worst_case.main()
report.main()
