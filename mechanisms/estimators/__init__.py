"""Estimators of scikit-learn's kind that use the mechanisms, and their models as cards, pages and SQL."""
