"""Private evaluation of classifiers: one noisy histogram of scores by class, and metrics from it."""
