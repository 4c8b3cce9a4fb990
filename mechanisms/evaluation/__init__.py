"""Private evaluation of models: noisy histograms of scores by class, noisy sums of residuals, and metrics."""
