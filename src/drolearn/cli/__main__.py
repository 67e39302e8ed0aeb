"""`python -m drolearn.cli` is `drolearn`."""

from drolearn.cli import main

main()
