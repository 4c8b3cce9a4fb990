"""What is optimised, as data: losses, lattices, data sets. Imports no solver and no mechanism."""

if __name__ != "privopt.problems":
    raise ImportError("import privopt.problems: under the bare name every class would exist twice")
