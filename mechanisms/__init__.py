"""How privacy is obtained: plan (calibration, no data), then release (a reduction to oracle calls)."""

if __name__ != "privopt.mechanisms":
    raise ImportError("import privopt.mechanisms: under the bare name every class would exist twice")
