"""Confidence intervals of linear models from their releases: post-processing, without privacy cost."""
