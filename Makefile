# Each target sets up what it needs in .venv/ and .servers/. A Python other than python3: make PYTHON=python3.12 demo
PYTHON ?= python3

.PHONY: demo test lint clean

demo:
	@$(PYTHON) -m harness.install locust keystone
	@.venv/bin/python -m harness run configs/experiments/keystone-processes.yml

# Side by side, but for what measures ratios of times against a real server or against other generators.
test:
	@$(PYTHON) -m harness.install tests keystone keystone-queens postgresql apache memcached chromium nginx
	@.venv/bin/python -m pytest -n 2 --dist loadfile tests/analysis tests/harness tests/locustfiles
	@.venv/bin/python -m pytest --ignore tests/analysis --ignore tests/harness --ignore tests/locustfiles

lint:
	@$(PYTHON) -m harness.install tests
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy analysis harness locustfiles benchmarks

# Results stay: they took long to make.
clean:
	rm -rf .venv .servers .mypy_cache .pytest_cache .ruff_cache
