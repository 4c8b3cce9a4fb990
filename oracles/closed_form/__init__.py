"""Oracles for sets: formulas, or finite methods. Each builder refuses what it has neither for.

Sets of your own join by ``project.register(YourSet)`` and ``facing.register(YourSet)``.
"""

from privopt.oracles.closed_form.bregman import bregman_step, natural_geometry
from privopt.oracles.closed_form.gauge_step import gauge_step
from privopt.oracles.closed_form.linear import facing, linear_minimizer
from privopt.oracles.closed_form.projection import project, projector
from privopt.oracles.closed_form.prox import prox_step
from privopt.oracles.closed_form.quantities import (
    contains,
    gauge,
    gaussian_width,
    penalized_support,
    support,
    violation,
)

__all__ = [
    "bregman_step",
    "contains",
    "facing",
    "gauge",
    "gauge_step",
    "gaussian_width",
    "linear_minimizer",
    "natural_geometry",
    "penalized_support",
    "project",
    "projector",
    "prox_step",
    "support",
    "violation",
]

if __name__ != "privopt.oracles.closed_form":
    raise ImportError("import privopt.oracles.closed_form: under a bare name every class would exist twice")
