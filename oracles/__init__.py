"""What we assume we can solve: interfaces, certificates, backends, wrappers, the conformance kit."""

if __name__ != "privopt.oracles":
    raise ImportError("import privopt.oracles: under the bare name every class would exist twice")
