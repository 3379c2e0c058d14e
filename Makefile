# Everything goes through dev.py, which makes .venv with what is needed; make only saves typing.
DEV := python3 dev.py

.DEFAULT_GOAL := help
.PHONY: help venv sample test lint docs site bench profile soak chaos fuzz mutants protos conformance image

help:  ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 22

venv:  ## make .venv with everything that development needs
	$(DEV) run python --version

sample:  ## the shop on this machine: apps, control plane, a stock Envoy (Ctrl-C ends it)
	$(DEV) sample

test:  ## every test (ARGS="-k routes -x" for pytest)
	$(DEV) test $(ARGS)

lint:  ## ruff, mypy --strict, layer contracts, generated documentation
	$(DEV) lint

docs:  ## write docs/settings.md and the generated files of deploy/ again
	$(DEV) run python -m pilot.settings > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md
	$(DEV) run python -m deploy

site:  ## docs/ as a site in build/site
	$(DEV) run python -m sphinx -W --keep-going -b html docs build/site

bench:  ## the load table (ARGS are of bench/table.py)
	$(DEV) run python bench/table.py $(ARGS)

profile:  ## what the derivations of a load shape cost, by function (ARGS are of bench/derivations.py)
	$(DEV) run python bench/derivations.py $(ARGS)

soak:  ## an hour of random edits with proxies of all kinds connected (ARGS="--minutes 5")
	$(DEV) run python bench/soak.py $(ARGS)

chaos:  ## hostile clients and broken folders against a real process (ARGS are words of scenarios)
	$(DEV) run python bench/chaos.py $(ARGS)

fuzz:  ## bodies that are nearly AdmissionReviews, a million of them (ARGS="--count 10000")
	$(DEV) run python bench/fuzz_reviews.py $(ARGS)

mutants:  ## untracked reads and small wrong changes that the tests must see (ARGS are of bench/mutants.py)
	$(DEV) run python bench/mutants.py $(ARGS)

protos:  ## generate the modules of protos/*.proto protos/istio/*.proto
	$(DEV) run python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/*.proto protos/istio/*.proto

conformance:  ## compare with the reference (SUITE=path of the conformance program, ARGS=words)
	@test -n "$(SUITE)" || { echo 'say SUITE=path/of/run.py' >&2; exit 2; }
	$(DEV) run python $(SUITE) $(ARGS)

image:  ## a container image of the control plane
	docker build --build-arg VERSION=$$($(DEV) version) --build-arg REVISION=$$(git rev-parse HEAD) -t pyistiod .
