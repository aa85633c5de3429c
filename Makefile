# What is typed most often; `.ci/run` does it all in a new environment.
PYTHON ?= python

.PHONY: quick all lint docs fuzz

quick:  ## Every room's quick tests.
	$(PYTHON) -m pytest -q -n 3 --dist=worksteal tests

all:  ## All tests.
	$(PYTHON) -m pytest -q -n 3 --dist=worksteal --all tests

lint:  ## Style and types.
	ruff check . && ruff format --check . && mypy

docs:  ## The documentation site, served here.
	$(PYTHON) -m mkdocs serve

fuzz:  ## 1,000 random programs on replicas against one device.
	$(PYTHON) -m tests.partitioner --programs=1000
