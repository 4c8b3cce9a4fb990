"""What all tests rely on."""

from __future__ import annotations

import signal

# Whoever starts the tests in the background may have Ctrl-C ignored, and processes inherit that: those that
# tests interrupt must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
