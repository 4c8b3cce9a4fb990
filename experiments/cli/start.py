"""Entry point of ``privopt``: a fast start, during which Ctrl-C exits without a traceback."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType


def main() -> None:
    """Import the command line, then run it."""
    gc.set_threshold(20_000)  # modules are never freed: garbage collection would take a tenth of the start
    signal.signal(signal.SIGINT, _interrupted)
    from privopt.experiments.cli.main import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _interrupted(number: int, frame: FrameType | None) -> None:
    # A module that is being imported could catch an exception or replace it.
    os.write(2, b"Interrupted\n")
    os._exit(130)
