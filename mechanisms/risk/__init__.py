"""Foundations of private risk minimisers: plan, release, noisy iterations, step counts, sampled batches."""
