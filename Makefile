# Short names for tasks. dev.py creates .venv and runs them.
DEV := python3 dev.py
PIN := $(DEV) run uv pip compile --quiet --generate-hashes --no-annotate --no-header --python-version 3.12 --python-platform linux
IMAGE ?= $(shell sed -n '/^\[tool.pyistiod\]/,/^$$/s/^image = "\(.*\)"$$/\1/p' pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help venv sample test lint docs site bench profile soak chaos fuzz mutants protos conformance cluster constraints image

help:  ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 22

venv:  ## create .venv
	$(DEV) run python --version

sample:  ## a sample mesh on this machine, with a stock Envoy (Ctrl-C stops it)
	$(DEV) sample

test:  ## run the tests (ARGS="-k routes -x" go to pytest)
	$(DEV) test $(ARGS)

lint:  ## ruff, mypy, import rules between layers, generated files, documentation, secrets
	$(DEV) lint

docs:  ## write docs/settings.md and the generated files of deploy/
	$(DEV) run python -m pilot.settings > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md
	$(DEV) run python -m deploy

site:  ## build the documentation in build/site
	$(DEV) run python -m sphinx -W --keep-going -b html docs build/site

bench:  ## measure the load table (ARGS of bench/load_table.py)
	$(DEV) run python bench/load_table.py $(ARGS)

profile:  ## profile the derived functions by load shape (ARGS of bench/derivations.py)
	$(DEV) run python bench/derivations.py $(ARGS)

soak:  ## random edits for an hour, with all kinds of proxies connected (ARGS="--minutes 5")
	$(DEV) run python bench/soak.py $(ARGS)

chaos:  ## hostile clients and broken directories against a real process (ARGS=scenarios)
	$(DEV) run python bench/chaos.py $(ARGS)

fuzz:  ## send a million malformed AdmissionReviews (ARGS="--count 10000")
	$(DEV) run python bench/fuzz_reviews.py $(ARGS)

mutants:  ## mutation tests and untracked reads (ARGS of bench/mutants.py)
	$(DEV) run python bench/mutants.py $(ARGS)

protos:  ## generate the Python modules of protos/
	$(DEV) run python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/*.proto protos/istio/*.proto

conformance:  ## compare with recordings of istiod (ARGS="xds gateway- -v"; tests/conformance/README.md)
	$(DEV) conformance $(ARGS)

cluster:  ## install and use the mesh on a Kubernetes cluster without container runtime, as root (ARGS=steps)
	$(DEV) run python -m tests.cluster $(ARGS)

constraints:  ## pin the latest versions of the image's dependencies and of the build tools, with hashes
	head -1 deploy/constraints.txt > deploy/constraints.txt.new
	$(PIN) --extra kubernetes pyproject.toml >> deploy/constraints.txt.new
	mv deploy/constraints.txt.new deploy/constraints.txt
	head -1 deploy/build-requirements.txt > deploy/build-requirements.txt.new
	$(PIN) deploy/build-requirements.in >> deploy/build-requirements.txt.new
	mv deploy/build-requirements.txt.new deploy/build-requirements.txt

image:  ## build the container image (IMAGE=REGISTRY/NAME becomes the default of the charts in it)
	docker build --build-arg VERSION=$$($(DEV) version) --build-arg REVISION=$$(git rev-parse HEAD) --build-arg IMAGE=$(IMAGE) \
		-t $(IMAGE):$$(sed -n 's/^version: //p' deploy/charts/istiod/Chart.yaml) .
