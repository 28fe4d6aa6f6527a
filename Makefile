# Every target sets up .venv by itself; it is rebuilt only when pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := train,text,audio,excel,boosting,export,integrations,scale,speed,dev
# Workers have one thread each, so that tests do not depend on how many cores there are. Three keep two cores busy: some
# tests wait for processes that they start.
PYTEST_FLAGS ?= -n 3 --dist worksteal
# Bytecode is written whatever the shell says: many tests start processes, and each would compile the sources again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest

.PHONY: demo test test-slow lint bench docs site evidence release-check clean

# The command alone, which is all that the demo needs: torch is most of it.
.venv/.train: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e ".[train]"
	touch $@

.venv/.ready: .venv/.train
	$(INSTALL) -e ".[$(EXTRAS)]"
	touch $@

.venv/.bench: .venv/.ready benchmarks/requirements.txt
	$(INSTALL) -r benchmarks/requirements.txt
	touch $@

demo: .venv/.train  ## train on embedded data, print the table, write the report
	$(BIN)/vicinal train digits --train-size 400 --out demo-output/run --report demo-output/report.html

test: lint  ## everything that must hold
	$(PYTEST) $(PYTEST_FLAGS)

test-slow: .venv/.ready  ## the tests that take long, which `test` leaves out
	$(PYTEST) $(PYTEST_FLAGS) -m slow

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.bench  ## speed against the peers; prints the tables of benchmarks/README.md
	$(BIN)/python -m benchmarks

docs: .venv/.ready  ## redraw the pictures of the docs and run every code block
	$(BIN)/python docs/pictures.py
	$(BIN)/python -m pytest tests/test_docs.py

.venv/.site: .venv/.ready
	$(INSTALL) -e ".[docs]"
	touch $@

site: .venv/.site  ## the documentation as a site, in site/; nothing is fetched when it is built or read
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

evidence: .venv/.ready  ## write docs/evidence.md and its pages from the committed results
	$(BIN)/vicinal reproduce --pages docs --results results

release-check:  ## build wheel and sdist from a clean clone, check them, and run the quick start and the demo from the wheel
	PYTHON=$(PYTHON) .ci/release-check

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
