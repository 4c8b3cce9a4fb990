"""Estimators with scikit-learn's interface for the mechanisms, and their models as cards, pages and SQL."""
