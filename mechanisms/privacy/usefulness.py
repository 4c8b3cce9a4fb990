"""Noise against signal: a public prediction, before data are read, of whether an answer can be useful."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from privopt.mechanisms.privacy.parameters import check_positive

# Noise of a tenth of the largest plausible signal may hide an ordinary signal: on the tasks of the papers,
# mean gradients at zero weights are 0.14 to 0.44 of the largest plausible ones.
CAUTION = 0.1


@dataclass(frozen=True)
class NoiseToSignal:
    """Predicted size of a mechanism's noise and the size of the signal that it perturbs, in the same unit.

    Both follow from the plan: no data are read. The signal is the largest that is plausible. So a ratio of 1
    or more says that the answer is noise, and a ratio of ``CAUTION`` or more that noise may hide an ordinary
    signal; a small ratio promises nothing about the data.

    Attributes:
        noise: size of the noise.
        signal: size of the signal, > 0.
        unit: what both measure.
    """

    noise: float
    signal: float
    unit: str

    def __post_init__(self) -> None:
        check_positive(self.signal, "signal")

    @property
    def ratio(self) -> float:
        """Noise over signal."""
        return self.noise / self.signal

    @property
    def is_noise(self) -> bool:
        """Whether the noise is as large as the signal, or larger."""
        return not self.ratio < 1

    @property
    def warning(self) -> str:
        """One sentence for a plan whose answer is noise, or may be; otherwise empty."""
        if self.ratio < CAUTION:
            return ""
        expected = (
            "expect an answer no better than a constant"
            if self.is_noise
            else "most signals are smaller, and the answer may be worse than a constant"
        )
        return (
            f"the noise is {self.ratio:.2g} times the largest plausible signal ({self.unit}): {expected}. "
            "To do: more records, a larger epsilon, or fewer features"
        )

    def __str__(self) -> str:
        return f"{self.ratio:.2g} ({self.unit}: {self.noise:.3g} of {self.signal:.3g})"


class NoiseWarning(UserWarning):
    """Warning that noise may outweigh the signal of an ordinary table; given before any record is read."""


def warn_if_noise(measure: NoiseToSignal | None) -> None:
    """Warn with a ``NoiseWarning`` where the answer of a plan is noise, or may be."""
    if measure is not None and measure.warning:
        warnings.warn(measure.warning, NoiseWarning, stacklevel=3)
