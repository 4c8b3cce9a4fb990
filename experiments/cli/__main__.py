"""``python -m privopt.experiments.cli``."""

from privopt.experiments.cli.main import main

main()
