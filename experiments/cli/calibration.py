"""Reports of ``privopt calibrate``, with the same keys in the same order for every mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal

ASKED = "it was asked for"
_UNKNOWN_USE = "noise / signal: not known from these facts"


def common_report(
    name: str,
    noised: str,
    noise: Mapping[str, Any],
    measure: NoiseToSignal | None,
    spend: PrivacySpend,
    *,
    more: Mapping[str, Any] | None = None,
    reason: str = ASKED,
) -> dict[str, Any]:
    """Return a report with the same keys in the same order for every mechanism; ``more`` adds its own."""
    return {
        "mechanism": name,
        "reason": reason,
        "noise_on": noised,
        **noise,
        **(more or {}),
        "noise_to_signal": None if measure is None else measure.ratio,
        "warning": "" if measure is None else measure.warning,
        **{key: value for key, value in spend.to_dict().items() if key != "mechanism"},
    }


def calibration_lines(report: dict[str, Any]) -> list[str]:
    """Return the lines that ``privopt calibrate`` prints, without empty values and without the event.

    Every mechanism has, in this order: mechanism, noise on, the numbers of its noise, noise / signal, and its
    spend.
    """
    level = {"gdp": "mu (GDP)", "zcdp": "rho (zCDP)"}.get(report["notion"], "level")
    names = {"level": level, "noise_to_signal": "noise / signal"}
    lines = []
    for key, value in report.items():
        if key == "noise_to_signal" and value is None:
            lines.append(_UNKNOWN_USE)
        if key == "event" or value is None or value == "" or (key, value) == ("reason", ASKED):
            continue
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        if isinstance(value, tuple):
            first, last = (f"{v:.6g}" for v in value)
            text = first if first == last else f"{first} to {last}"
        lines.append(f"{names.get(key, key.replace('_', ' '))}: {text}")
    return lines
