# `make demo` and `make test` do all of their own set-up, in .venv: they need Python >= 3.10 with venv and
# headers, a C and a C++ compiler.
# NMP_ZOO: the folder of models and images that `make zoo` and the zoo tests use.

PYTHON ?= python3
NMP_ZOO ?= ../shared/zoo
WARNINGS := -std=c99 -O1 -Wall -Wextra -Wconversion -Werror -pedantic

VENV := .venv
BIN := $(VENV)/bin
C_FILES := $(shell find interpreter -name '*.[ch]' -o -name '*.inc' -o -name '*.[ch]pp' -o -name CMakeLists.txt)
FORMATTED := $(shell find interpreter -path interpreter/src/gen -prune -o \( -name '*.[ch]' -o -name '*.inc' -o -name '*.[ch]pp' \) -print)

# Every process of a test run computes on one core: on small machines BLAS threads only get in each other's way.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# onnxruntime reports its uses to its makers and writes into HOME, unless it is told not to.
export ORT_DISABLE_TELEMETRY ?= 1
# Programs that tests start have their bytecode from the first time on, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=
export NMP_ZOO := $(abspath $(NMP_ZOO))

.PHONY: help set-up build docs firmware wasm npm demo test test-slow test-soak test-all proofs fuzz fuzz-models mutants coverage lint lint-packaged lint-types lint-c lint-tidy lint-analyzer format size stack audit lock zoo models trained qat bench bench-throughput bench-browser bench-accuracy bench-mcu bench-mcu-ops bench-memories bench-streams costs bench-aarch64 generate wheels wheels-test wheels-aarch64-test cross clean

help:  ## this list
	@awk -F ':.*##' '/^[a-z0-9-]+:.*##/ { printf "%-19s %s\n", $$1, $$2 }' Makefile

# Headers come with most Pythons; Debian has them in a package of their own.
define CHECK_PYTHON
import os, sys, sysconfig
if sys.version_info < (3, 10): sys.exit("Python 3.10 or newer is needed, this is " + sys.version)
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")): sys.exit("Python.h is missing: install python3-dev")
endef
export CHECK_PYTHON

$(BIN)/python:
	@$(PYTHON) -c "$$CHECK_PYTHON"
	$(PYTHON) -m venv $(VENV)

# Nothing is installed whose hash is not in a lock; what is published as sources alone is built by what is. Most modules
# are never imported: Python compiles one when it is.
LOCKED = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-build-isolation -r

$(VENV)/packages: $(BIN)/python packaging/locks/build.lock packaging/locks/test.lock
	$(LOCKED) packaging/locks/build.lock
	$(LOCKED) packaging/locks/test.lock
	@touch $@

$(VENV)/installed: $(VENV)/packages pyproject.toml $(wildcard CMakeLists.txt) $(C_FILES)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/linters: packaging/locks/lint.lock $(VENV)/installed
	$(LOCKED) $<
	@touch $@

$(VENV)/writers: packaging/locks/docs.lock $(VENV)/installed
	$(LOCKED) $<
	@touch $@

$(VENV)/provers: packaging/locks/proofs.lock $(VENV)/installed
	$(LOCKED) $<
	@touch $@

$(VENV)/simulator: packaging/locks/sim.lock $(VENV)/installed
	$(LOCKED) $<
	@touch $@

# One after another, since they go into one place.
set-up:
	@$(MAKE) --no-print-directory --jobs=1 $(addprefix $(VENV)/,installed linters writers simulator provers)

build: $(VENV)/installed  ## the virtual environment with nmpconv in it

# For the simulated device: nothing more is needed where both are here. Tests of CI need what takes their places.
DEVICE_TOOLS := $(and $(shell command -v qemu-system-arm),$(shell command -v arm-none-eabi-gcc))

demo: $(VENV)/installed $(if $(NMP_CI),$(VENV)/simulator,$(if $(DEVICE_TOOLS),,$(VENV)/simulator))  ## convert a sample, look into the file, run it, measure it here and on a simulated device
	PATH="$(abspath $(BIN)):$$PATH" samples/shapes/run.sh build/demo
	$(BIN)/nmpconv bench build/demo/shapes.nmp
	$(BIN)/nmpconv device build mps2-an386
	$(BIN)/nmpconv bench build/demo/shapes.nmp --device sim:mps2-an386

# More than cores, since tests wait for simulated devices.
WORKERS = $(shell expr $$(nproc) '*' 3 / 2)

test: $(VENV)/installed  ## the quick tests
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not slow"

# Tests of a module stay together for what they compile; who is done first takes from the others.
test-slow: $(VENV)/installed  ## whole conversions, boards, sanitizers
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "slow and not soak"

test-soak: $(VENV)/installed  ## at length what others do once: fuzzing, mutants of what is proved
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "slow and soak"

test-all: test test-slow test-soak  ## every test

proofs: $(VENV)/provers  ## statements about all inputs of C functions, decided by a solver (ARGS="NAME ... --mutants")
	$(BIN)/python -m proofs $(ARGS)

fuzz-models: $(VENV)/installed  ## random models against onnxruntime (SECONDS=600 ARGS="--seed 1 --replay FILE ...")
	PYTHONPATH=tests $(BIN)/python -m fuzz_models --seconds $(or $(SECONDS),600) --jobs $$(nproc) $(ARGS)

fuzz: $(VENV)/installed  ## mutants of all that is read, SECONDS=60 each, in idle time (ARGS="--record --only model ...")
	PYTHONPATH=tests nice -n 19 $(BIN)/python -m fuzz_inputs --seconds $(or $(SECONDS),60) $(ARGS)

mutants: $(VENV)/installed  ## changes of the sources that no quick test sees; goes on where it ended (ARGS="--count 60 --seed 2 ...")
	PYTHONPATH=tests nice $(BIN)/python -m mutation $(ARGS)

coverage: $(VENV)/installed  ## branches and conditions (MC/DC) of what reads files and frames, and of ops; needs clang 19, llvm 19
	PYTHONPATH=tests $(BIN)/python -m fuzz_inputs --coverage

lint: lint-c lint-analyzer lint-packaged  ## style, types, and warnings of the C code

# By programs that come as packages.
lint-packaged: $(VENV)/linters lint-types lint-tidy audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(FORMATTED)
	$(BIN)/python schema/generate.py --check

# It takes longest: by itself others run beside it.
lint-types: $(VENV)/linters
	$(BIN)/mypy
	$(BIN)/python tests/documents/typed.py

LINT_FIRMWARE := $(MAKE) --no-print-directory -s -C interpreter/firmware lint OUT=../../build/lint

# clang gives all of its warnings before it optimizes. What gcc finds while it does, it finds in portable code for this
# machine; for AArch64 it optimizes what is AArch64's own.
lint-c:
	@for cc in gcc clang clang-16 aarch64-linux-gnu-gcc; do \
	  if command -v $$cc > /dev/null; then \
	    echo "$$cc $(WARNINGS)"; \
	    for file in $$(find interpreter/src -name '*.c'); do \
	      case $$cc-$$file in \
	        clang*) how="-S -emit-llvm -Xclang -disable-llvm-passes" ;; \
	        gcc*|*/arch/aarch64/*) how=-c ;; \
	        *) how=-fsyntax-only ;; \
	      esac; \
	      $$cc $(WARNINGS) -Iinterpreter/include -Iinterpreter/src $$how -o /dev/null $$file || exit 1; \
	    done; \
	    $(LINT_FIRMWARE)/$$cc BOARD=host CC=$$cc || exit 1; \
	  elif [ -n "$$NMP_CI" ] && [ $$cc != clang ]; then \
	    echo "$$cc is missing, and in CI nothing is optional" >&2; exit 1; \
	  fi; \
	done
	@$(LINT_FIRMWARE) BOARD=all

OWN_C := $(wildcard interpreter/firmware/*.c interpreter/firmware/boards/host/*.c)

# bugprone and cert checks; .clang-tidy says which are left out, and why.
lint-tidy: $(VENV)/linters
	@$(BIN)/clang-tidy --quiet $$(find interpreter/src -name '*.c') $(OWN_C) -- -std=c99 -Iinterpreter/include -Iinterpreter/src \
	  -Iinterpreter/firmware -Iinterpreter/firmware/boards/host 2> /dev/null

ANALYZER := gcc -std=c99 -O1 -fanalyzer -Werror -Iinterpreter/include -Iinterpreter/src -Iinterpreter/firmware \
  -Iinterpreter/firmware/boards/host -S -o /dev/null

# Of what reads files and frames. decode.c: an op's outputs have been counted before their first one is asked for.
lint-analyzer:
	@find $(addprefix interpreter/src/,base core gen nmp.c ops) $(OWN_C) -name '*.c' ! -name decode.c | \
	  xargs -P $$(nproc) -n 1 $(ANALYZER)
	@$(ANALYZER) -Wno-analyzer-null-dereference interpreter/src/core/decode.c

audit: $(VENV)/linters  ## known vulnerabilities of what the locks pin (ARGS=--needed)
	@$(BIN)/python packaging/audit.py $(ARGS)

lock:  ## packaging/locks/: what is installed, by hashes; the newest that is allowed
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check uv "tomli; python_version < '3.11'"
	build/lock/bin/python packaging/lock.py

format: $(VENV)/linters  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(FORMATTED)

docs: $(VENV)/writers  ## build/site: the documents as a site; a broken link is an error
	$(BIN)/python -m sphinx -W --keep-going --quiet -c docs/site . build/site
	@echo "build/site/index.html"

generate: $(BIN)/python  ## what is generated from schema/nmp.fbs
	$(BIN)/python schema/generate.py

MLPERF_TINY := conv2d conv_add fully_connected add average_pool softmax reshape

size:  ## lines of source per folder; bytes of firmware
	@git ls-files | grep -E '\.(py|c|h|inc|cpp|fbs|sh|md|txt)$$|Makefile|^\.ci/run$$' | grep -v '^samples/.*labels' | xargs wc -l | \
	  awk '$$2 != "total" { n = sub("/[^/]*$$", "", $$2) ? $$2 : "."; lines[n] += $$1; files[n]++; all += $$1 } \
	  END { for (n in lines) printf "%6d lines %4d files  %s\n", lines[n], files[n], n; printf "%6d lines in all\n", all }' | sort -k5
	@if command -v arm-none-eabi-gcc > /dev/null; then \
	  echo "Firmware for Cortex-M4:"; \
	  $(MAKE) --no-print-directory -s -C interpreter/firmware size; \
	  $(MAKE) --no-print-directory -s -C interpreter/firmware size NAME=mlperf-tiny OPS="$(MLPERF_TINY)"; \
	else \
	  echo "Left out: bytes of firmware, which need gcc-arm-none-eabi libnewlib-arm-none-eabi."; \
	fi

stack: $(VENV)/installed  ## bytes of stack of public functions on a Cortex-M4, at most (ARGS=--ways)
	@$(BIN)/python bench/stack.py $(ARGS)

firmware:  ## build/firmware/BOARD.elf (BOARD=mps2-an385, mps2-an386, mps3-an547, rv32, host, ..., or all of them)
	@$(MAKE) --no-print-directory -s -C interpreter/firmware BOARD=$(or $(BOARD),mps2-an386)

wasm: $(VENV)/simulator  ## build/nmp.wasm: the interpreter as WebAssembly
	@$(MAKE) --no-print-directory -s -C interpreter/wasm ZIG="$(abspath $(BIN))/python -m ziglang"

npm: $(VENV)/simulator  ## build/nmp-runtime-VERSION.tgz: the same as a package for npm, which is needed
	@$(MAKE) --no-print-directory -s -C interpreter/wasm npm ZIG="$(abspath $(BIN))/python -m ziglang"

zoo: $(VENV)/installed  ## convert and measure the models of NMP_ZOO, against their floors
	$(BIN)/python bench/zoo.py --floors

MODELS_VENV := build/models-venv

$(MODELS_VENV)/installed: bench/models-requirements.txt
	$(PYTHON) -m venv $(MODELS_VENV)
	$(MODELS_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

models: $(VENV)/installed $(MODELS_VENV)/installed  ## published architectures: accepted or not, SQNR; takes a night (ARGS=...)
	$(BIN)/python bench/models.py --torch-python $(MODELS_VENV)/bin/python $(ARGS)

trained: $(VENV)/installed  ## trained models of wheels on PyPI beside onnxruntime's quantize_static (ARGS=...)
	PYTHONPATH=bench $(BIN)/python bench/trained.py $(ARGS)

qat: $(VENV)/installed  ## nets that lose by quantization, trained with the file's arithmetic; needs torch (ARGS=...)
	nice $(BIN)/python bench/qat.py $(ARGS)

BENCH_VENV := build/bench-venv

# One that cannot be installed is said and left out of the tables; the others run.
$(BENCH_VENV)/installed: bench/requirements.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check -r $< || \
	  grep -v '^#' $< | while read -r package; do \
	    $(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check "$$package" || echo "not installed: $$package" >&2; \
	  done
	@touch $@

bench: $(VENV)/installed $(BENCH_VENV)/installed $(MODELS_VENV)/installed  ## times of other engines and ours, on the models of NMP_ZOO (ARGS=...)
	PYTHONPATH=bench $(BIN)/python -m peers --peers-python $(BENCH_VENV)/bin/python $(ARGS)

bench-throughput: $(VENV)/installed  ## images a second of batches, ours and ONNX Runtime's, on all cores, on the models of NMP_ZOO (ARGS=...)
	PYTHONPATH=bench $(BIN)/python -m peers.throughput $(ARGS)

bench-browser: $(VENV)/installed $(VENV)/simulator  ## milliseconds in Chromium, ours and those of onnxruntime-web and LiteRT.js; needs npm and chromium (ARGS=...)
	PYTHONPATH=bench $(BIN)/python -m peers.browser $(ARGS)

bench-accuracy: $(VENV)/installed $(BENCH_VENV)/installed  ## accuracy of other quantizers and ours, on the models and images of NMP_ZOO (ARGS=...)
	PYTHONPATH=bench $(BIN)/python -m accuracy --peers-python $(BENCH_VENV)/bin/python $(ARGS)

bench-memories: $(VENV)/installed  ## bytes moved in a fast and a slow memory, counted on a simulated Cortex-M4 (ARGS="model.nmp ...")
	$(BIN)/python bench/two_memories.py $(ARGS)

bench-mcu: $(VENV)/installed  ## instructions, cycles, RAM and flash of the MLPerf Tiny nets on simulated microcontrollers
	$(BIN)/python bench/mcu.py

bench-mcu-ops: $(VENV)/installed  ## instructions per number of batch_matmul, softmax and normalize on simulated microcontrollers
	$(BIN)/python bench/mcu_ops.py

costs: $(VENV)/installed  ## nmpconv/runtime/costs.json: what kernels cost on microcontrollers, fitted to instructions that QEMU counts
	$(BIN)/python bench/costs.py $(ARGS)

bench-sound: $(VENV)/installed  ## instructions of a hop of sound on simulated microcontrollers
	$(BIN)/python bench/sound.py $(ARGS)

bench-streams: $(VENV)/installed  ## instructions of a stream's hop and of its window on simulated microcontrollers
	$(MAKE) firmware BOARD=all
	$(BIN)/python bench/streams.py

# One for each: 3.12 gives the wheel for all later ones. Of this list, not of another, Pythons may be missing.
PYTHONS ?= python3.10 python3.11 python3.12
THEIRS = $(addprefix --python ,$(PYTHONS)) $(if $(filter file,$(origin PYTHONS)),--those-here)

wheels:  ## dist/: wheels for Linux on x86-64 and AArch64, of nmpconv and nmpconv-runtime, and the sources
	$(PYTHON) packaging/wheels.py $(THEIRS) $(ARGS)

wheels-test:  ## the quick tests from the wheels of dist/ for this machine, without a compiler (ARGS=...)
	$(PYTHON) packaging/suite.py $(THEIRS) $(ARGS)

wheels-aarch64-test:  ## parts of them from a wheel for AArch64, in Debian's Python under qemu-user (ARGS=...)
	$(PYTHON) packaging/suite.py --arch aarch64 $(ARGS)

cross:  ## the interpreter and the binding compiled for Windows and macOS, where nobody runs them yet
	$(PYTHON) packaging/cross.py --python $(PYTHON) --warnings="$(WARNINGS)"

bench-aarch64: $(VENV)/installed $(BENCH_VENV)/installed  ## instructions of one inference on AArch64 under QEMU, ours and peers' (ARGS=...)
	$(BIN)/python bench/aarch64.py $(ARGS)

clean:  ## everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
