"""Benchmark of minimising oracles: workloads, timed runs, report, and instances as files."""
