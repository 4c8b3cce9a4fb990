"""``python -m privopt.experiments.cli``."""

from privopt.experiments.cli.start import main

main()
