"""Scorecards from linear models: mechanisms that build on the families convex and discrete."""

from typing import TYPE_CHECKING

from privopt.problems.lazy import lazily

# The names that estimators use. A module, with the mechanisms that it imports, is imported at its first use.
_HOMES = {
    "CardPlan": "card_plan",
    "CardSource": "near_cards",
    "ClassPoints": "class_points",
    "check_max_columns": "point_constraints",
    "plan_card": "card_plan",
    "plan_class_card": "class_plan",
    "solver_of": "card_plan",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:  # the same names, for type checkers
    from privopt.mechanisms.scorecards.card_plan import CardPlan as CardPlan
    from privopt.mechanisms.scorecards.card_plan import plan_card as plan_card
    from privopt.mechanisms.scorecards.card_plan import solver_of as solver_of
    from privopt.mechanisms.scorecards.class_plan import plan_class_card as plan_class_card
    from privopt.mechanisms.scorecards.class_points import ClassPoints as ClassPoints
    from privopt.mechanisms.scorecards.near_cards import CardSource as CardSource
    from privopt.mechanisms.scorecards.point_constraints import check_max_columns as check_max_columns
else:
    __getattr__, __dir__ = lazily(__name__, _HOMES)
