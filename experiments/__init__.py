"""Runnables: the command line, the demo, benchmarks and figures."""

if __name__ != "privopt.experiments":
    raise ImportError("import privopt.experiments: under the bare name every class would exist twice")
