# Two commands matter: `make demo` and `make test`. Each sets everything up by itself and reuses .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# auto: the CUDA module is compiled where a card is, for that card; on: for all cards; off: not at all.
PYTRACE_CUDA ?= auto
# The installed library must be the checkout's, whatever the caller's environment says.
unexport PYTHONPATH PYTHONHOME
# Hundreds of processes import torch, Ray and pytrace in the tests: Python must keep what it compiled of them.
unexport PYTHONDONTWRITEBYTECODE

# A process of tests a core (tests/conftest.py pins them), a file's tests in one of them, since they share what is slow to make. Files
# come in the order in which they are collected: the longest first (tests/conftest.py, too).
PARALLEL := -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

# The core under AddressSanitizer and UBSan, in an environment of its own that takes all else from .venv.
SANITIZED := .venv-sanitize
KERNEL_TESTS := $(addprefix tests/kernels/test_,similarity.py fuzzy.py edit_distance.py alignment.py set_cover.py beam.py walk.py names.py words.py word_lists.py pairs.py late_interaction.py bags.py spans.py parallel.py hostile_calls.py)

CUDA_FILES := $(wildcard csrc/cuda/* bindings/cuda/*)
EMULATION_FILES := $(wildcard tests/cuda_emulation/* tests/native/cuda_*)
# The product's tests first: one of them takes minutes under the sanitizers, and the others run beside it.
CUDA_TESTS := tests/kernels/test_cuda_product.py \
  $(filter-out %_machine_code.py %_cuda_product.py,$(wildcard tests/kernels/test_*cuda*.py))
CXX_FILES := $(wildcard csrc/*/*.h csrc/*/*.cc bindings/*.h bindings/*.cpp fuzz/*.h fuzz/*.cc tests/native/*.cc) \
  $(CUDA_FILES) $(EMULATION_FILES)
CORE := CMakeLists.txt pyproject.toml $(wildcard cmake/* csrc/*/*.* bindings/*.*) $(CUDA_FILES)

.PHONY: demo test lint counts bench models format emulation cuda-check evaluators-check gpu-check lock licences sbom wheels arm64-check bundle-check test-lowest sanitize sanitize-races sanitize-threads fuzz fuzz-readers attack soak cross-arm64 docs docs-links clean

demo: $(VENV)/.ready
	@$(BIN)/pytrace models pull tiny
	@$(BIN)/python examples/demo.py

test: $(VENV)/.ready-test emulation
	@$(BIN)/pytrace models pull tiny
	$(BIN)/python -m pytest $(PARALLEL) --durations 40

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest pytrace._core
	if $(BIN)/python -c 'import pytrace._cuda' 2> /dev/null; then $(BIN)/python -m mypy.stubtest pytrace._cuda; fi
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python tools/licences.py
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

bench: $(VENV)/.ready-test
	$(BIN)/pip install --quiet --editable '.[bench]'
	$(BIN)/pytrace bench

# Files broken at random, a minute for every reader of foreign text and bytes; READERS='NAME…' for some.
fuzz-readers: $(VENV)/.ready-test
	$(BIN)/python -m tests.attack.readers $(READERS)

# Everything hostile that could be thought of, on this machine alone, and who survives it (SECURITY.md); ATTACK=PART for a part.
attack: $(VENV)/.ready-test
	@$(BIN)/pytrace models pull tiny
	$(BIN)/python -m tests.attack $(ATTACK)

# Every night: a service under mixed load that is killed every ten minutes, beside commands that change its index and are killed, too;
# then indexes that are built, changed and killed. What it prints ends with what was wrong and how memory grew.
SOAK_MINUTES := 120

soak: $(VENV)/.ready-test
	@$(BIN)/pytrace models pull tiny
	$(BIN)/python -m benches.soak --minutes $$(($(SOAK_MINUTES) * 3 / 4)) --kills $$(($(SOAK_MINUTES) * 3 / 40)) --threads 1
	$(BIN)/python -m benches.index_kills --docs examples/docs --minutes $$(($(SOAK_MINUTES) / 4))

# The metrics in DeepEval and RAGAS, and what is exported for them: an environment of their own, since both want older packages than
# the other tests have. pytest-asyncio comes with DeepEval, and warns of a setting that nothing here needs.
EVALUATORS := build/evaluators

evaluators-check: $(EVALUATORS)/.ready
	DEEPEVAL_TELEMETRY_OPT_OUT=1 RAGAS_DO_NOT_TRACK=true $(EVALUATORS)/venv/bin/python -m pytest -p no:asyncio -p no:cacheprovider \
	  -m 'not models' tests/integrations/test_evaluators.py tests/integrations/test_docs.py

$(EVALUATORS)/.ready: $(CORE)
	$(PYTHON) -m venv $(EVALUATORS)/venv
	$(EVALUATORS)/venv/bin/pip install --quiet --upgrade 'pip>=25.1'
	$(EVALUATORS)/venv/bin/pip install --quiet --editable '.[deepeval,ragas]' --group evaluators \
	  --config-settings=build-dir=$(EVALUATORS)/core --config-settings=cmake.define.PYTRACE_CUDA=off
	@touch $@

# Python itself is not instrumented, so the sanitizers' libraries must be loaded before it. Leaks are not looked for:
# what Python and NumPy keep until the process ends would be taken for them. A request for more than 1 GiB fails as it
# does where memory is short, in place of being granted and filled.
sanitize: $(SANITIZED)/.ready build/emulation-sanitize/.ready
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024 \
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 PYTRACE_HOSTILE_CALLS=10000 PYTRACE_EMULATION=build/emulation-sanitize \
	$(SANITIZED)/bin/python -m pytest $(PARALLEL) -p no:cacheprovider -m 'not gpu' $(CUDA_TESTS) $(KERNEL_TESTS)
	@$(BIN)/python tools/native_checks.py passed sanitize

# The CUDA module for all cards, which takes nvcc and no card, and what its machine code must be.
cuda-check:
	@command -v nvcc > /dev/null || { echo 'cuda-check needs nvcc, of the CUDA toolkit' >&2; exit 1; }
	@rm -f $(VENV)/.ready
	$(MAKE) PYTRACE_CUDA=on $(VENV)/.ready-dev
	$(BIN)/python -m mypy.stubtest pytrace._cuda
	$(BIN)/python -m pytest tests/kernels/test_cuda_machine_code.py
	@$(BIN)/python tools/native_checks.py passed cuda

# The CUDA module for the emulated card of the tests: the kernels' own sources, compiled for the host. With -O1: a third less time to
# compile than with -O3, and the tests take a tenth longer.
emulation: build/emulation/.ready

build/emulation/.ready: SANITIZE :=
build/emulation-sanitize/.ready: SANITIZE := address,undefined
build/emulation-races/.ready: SANITIZE := thread
build/emulation/.ready build/emulation-sanitize/.ready build/emulation-races/.ready: \
  $(VENV)/.ready-test CMakeLists.txt $(wildcard cmake/*) $(CUDA_FILES) $(EMULATION_FILES)
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B $(@D) -G Ninja -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release \
	  -DCMAKE_CXX_FLAGS_RELEASE='-O1 -DNDEBUG' -DPYTRACE_WERROR=ON -DPYTRACE_CUDA_EMULATION=ON -DPYTRACE_DRIVERS=ON -DPYTRACE_SANITIZE=$(SANITIZE) \
	  -Dpybind11_DIR="$$($(BIN)/python -m pybind11 --cmakedir)"
	$(BIN)/ninja -C $(@D) _cuda faults cuda_merge cuda_product
	@touch $@

# The kernels' races on the emulated card: every thread of a block is one to the sanitizer, and only barriers order them.
sanitize-races: build/emulation-races/.ready
	@case "$$(g++ -print-file-name=libtsan.so)" in /*) ;; *) \
	  echo "g++ has no libtsan.so; on Debian: apt-get install g++ (on Fedora: dnf install libtsan)" >&2; exit 1;; esac
	LD_PRELOAD="$$(g++ -print-file-name=libtsan.so)" TSAN_OPTIONS=exitcode=66:allocator_may_return_null=1 \
	PYTRACE_EMULATION=build/emulation-races $(BIN)/python -m pytest -p no:cacheprovider -m 'not gpu' $(CUDA_TESTS)

# On a machine with a card: the tests there, then once more under compute-sanitizer, some hundred times as slowly.
define CARD_CHECK
import sys
from pytrace.errors import DeviceUnavailableError
from pytrace.kernels import devices
try:
    devices.require("cuda")
except DeviceUnavailableError as error:
    sys.exit(f"gpu-check needs a CUDA card: {error}")
endef
export CARD_CHECK
COMPUTE_SANITIZER := $(firstword $(shell command -v compute-sanitizer) $(wildcard /usr/local/cuda*/bin/compute-sanitizer))

gpu-check: $(VENV)/.ready-test
	@$(BIN)/python -c "$$CARD_CHECK"
	@test -n "$(COMPUTE_SANITIZER)" || { echo 'gpu-check needs compute-sanitizer, which comes with the CUDA toolkit' \
	  '(NVIDIA: cuda-sanitizer of its version); install it or put its folder on the PATH' >&2; exit 1; }
	$(BIN)/python -m pytest -m gpu tests
	for tool in memcheck racecheck; do \
	  $(COMPUTE_SANITIZER) --tool $$tool --error-exitcode 86 \
	  $(BIN)/python -m pytest -p no:cacheprovider -m gpu --timeout 7200 tests || exit 1; done

# The kernels without Python, which is not instrumented. The deliberate race must be found: exit status 66.
CLANG_PACKAGES := clang-14 libclang-rt-14-dev

sanitize-threads: build/tsan/build.ninja
	$(BIN)/ninja -C build/tsan threads
	@TSAN_OPTIONS=exitcode=66 build/tsan/threads --race > build/tsan/race.log 2>&1; status=$$?; \
	if [ $$status -ne 66 ]; then echo "the deliberate race was not found: build/tsan/race.log" >&2; exit 1; fi
	TSAN_OPTIONS=exitcode=66 build/tsan/threads

FUZZ_SECONDS := 30
FUZZ_TARGETS := fuzzy align cover

fuzz: build/fuzz/build.ninja
	$(BIN)/ninja -C build/fuzz
	for target in $(FUZZ_TARGETS); do mkdir -p build/fuzz/found/$$target && \
	  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 build/fuzz/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) \
	  -max_len=1024 -timeout=20 -print_final_stats=1 -artifact_prefix=build/fuzz/$$target- build/fuzz/found/$$target || exit 1; done

# The core alone for arm64, where NEON is the baseline, and the thread driver on an emulated processor.
cross-arm64:
	@command -v aarch64-linux-gnu-g++ qemu-aarch64 > /dev/null || \
	  { echo 'cross-arm64 needs g++-aarch64-linux-gnu and qemu-user (apt-get install both)' >&2; exit 1; }
	mkdir -p build/arm64
	aarch64-linux-gnu-g++ -std=c++17 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Icsrc -pthread -static \
	  $(filter-out csrc/cuda/%,$(wildcard csrc/*/*.cc)) tests/native/threads.cc -o build/arm64/threads
	qemu-aarch64 build/arm64/threads

build/tsan/build.ninja: SANITIZE := thread
build/fuzz/build.ninja: SANITIZE := address,undefined,fuzzer-no-link
build/tsan/build.ninja build/fuzz/build.ninja: $(VENV)/.ready-test CMakeLists.txt
	@command -v clang++-14 > /dev/null || { echo "clang is missing; on Debian: apt-get install $(CLANG_PACKAGES)" >&2; exit 1; }
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B $(@D) -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 \
	  -DCMAKE_BUILD_TYPE=Release -DPYTRACE_PYTHON=OFF -DPYTRACE_DRIVERS=ON -DPYTRACE_WERROR=ON -DPYTRACE_SANITIZE=$(SANITIZE)

# The site of docs/, which a browser opens from the disk; what is wrong in a page is an error.
SITE := $(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env --doctree-dir build/site/doctrees

docs: $(VENV)/.ready-test
	$(SITE) docs build/site/html
	@echo "build/site/html/index.html"

# Needs the network: it asks every address that a page links to.
docs-links: $(VENV)/.ready-test
	$(SITE) -b linkcheck docs build/site/links

# What pyproject.toml asks for, resolved into uv.lock and lock/. Versions stay as they are while pyproject.toml allows them; UPGRADE=all
# takes the newest of all packages, UPGRADE='NAME NAME' of some.
lock: $(VENV)/.ready-release
	$(BIN)/python tools/lock.py $(UPGRADE)
	$(BIN)/python tools/licences.py --look-up

licences: $(VENV)/.ready-release
	$(BIN)/python tools/licences.py --look-up

# Wheels for Linux on x86-64 and arm64, and the source, in dist/.
wheels: $(VENV)/.ready-release $(VENV)/.ready
	$(BIN)/python tools/wheels.py build

# The kernels' tests on the wheel for arm64, on an emulated processor with Debian's Python: as root, since debootstrap wants it.
ARM64 := $(CURDIR)/build/arm64-wheel
ARM64_TESTS := $(filter-out %hostile_calls.py %dispatch.py %parallel.py,$(KERNEL_TESTS))

arm64-check: wheels
	@command -v debootstrap qemu-aarch64-static > /dev/null || \
	  { echo 'arm64-check needs debootstrap and qemu-user-static (apt-get install both)' >&2; exit 1; }
	mkdir -p $(ARM64)
	test -e $(ARM64)/root/usr/bin/python3.11 || { \
	  debootstrap --foreign --arch=arm64 --variant=minbase --include=python3 bookworm $(ARM64)/root && \
	  for package in $(ARM64)/root/var/cache/apt/archives/*.deb; do dpkg-deb -x $$package $(ARM64)/root || exit 1; done; }
	rm -rf $(ARM64)/site $(ARM64)/place
	$(BIN)/pip install --quiet --target $(ARM64)/site --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --python-version 3.11 \
	  --only-binary :all: $(CURDIR)/dist/pytrace_rag-*_aarch64.whl pytest pytest-timeout hypothesis scipy rapidfuzz ml-dtypes
	mkdir -p $(ARM64)/place && cp -r tests pyproject.toml $(ARM64)/place
	cd $(ARM64)/place && PYTHONPATH=../site qemu-aarch64-static -L ../root ../root/usr/bin/python3.11 -m pytest -q -p no:cacheprovider \
	  -p no:pytrace -m 'not gpu and not models and not data' $(ARM64_TESTS)

# A bundle of this checkout's wheel, installed and asked where there is no network interface: as root, or where user namespaces are allowed.
bundle-check: $(VENV)/.ready
	rm -rf build/bundle build/bundle-installed
	$(BIN)/pytrace models pull tiny
	$(BIN)/pytrace bundle --out build/bundle
	env -i PATH="$$PATH" HOME="$(CURDIR)/build" unshare --net --map-root-user sh build/bundle/install.sh build/bundle-installed

# What is in pytrace and comes with it, in CycloneDX; EXTRAS='cpu docs' for some extras.
sbom: $(VENV)/.ready-release
	$(BIN)/python tools/sbom.py build/sbom.json $(EXTRAS)

# The lowest versions that pyproject.toml allows, on Python 3.11, in an environment of their own; not the tests that need torch or Ray.
LOWEST := build/lowest
LOWEST_TESTS := $(addprefix tests/,documents evaluation kg reader report retrieval storage triples)

test-lowest: $(LOWEST)/.ready
	$(LOWEST)/venv/bin/python -m pytest $(PARALLEL) -p no:cacheprovider -m 'not models and not data' $(LOWEST_TESTS)

$(LOWEST)/.ready: lock/build.txt lock/lowest.txt $(CORE)
	$(PYTHON) -m venv $(LOWEST)/venv
	$(LOWEST)/venv/bin/pip install --quiet --require-hashes --no-deps -r lock/build.txt
	CMAKE_ARGS="$(LLAMA_ARGS) $$CMAKE_ARGS" $(LOWEST)/venv/bin/pip install --quiet --require-hashes --no-deps --no-build-isolation \
	  -r lock/lowest.txt
	$(LOWEST)/venv/bin/pip install --quiet --no-deps --no-build-isolation --editable . \
	  --config-settings=build-dir=$(LOWEST)/core --config-settings=cmake.define.PYTRACE_CUDA=off
	@touch $@

# How large the house is.
counts:
	@$(PYTHON) tools/counts.py

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

# What is installed is what lock/ says, with its hashes (CONTRIBUTING.md): pip chooses nothing, neither to install nor to build with.
LOCKED := $(BIN)/pip install --require-hashes --no-deps --no-build-isolation

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-build: lock/build.txt | $(BIN)/python
	$(BIN)/pip install --quiet --require-hashes --no-deps -r $<
	@touch $@

# llama.cpp alone, without its tools, server, common library and image support, which nothing here uses.
LLAMA_ARGS := -DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama_cpp_INCLUDE=$(CURDIR)/cmake/llama.cmake

$(VENV)/.ready-llama: lock/demo.txt $(VENV)/.ready-build
	@echo "Installing llama.cpp's Python package and others: compiling it takes about 3 minutes on 2 cores, once; pip keeps the wheel."
	CMAKE_ARGS="$(LLAMA_ARGS) $$CMAKE_ARGS" $(LOCKED) --quiet -r $<
	@touch $@

# Editable: the Python layer runs from the checkout, the core is rebuilt when its sources change.
$(VENV)/.ready: $(VENV)/.ready-llama $(CORE)
	@echo "Installing pytrace: compiling its kernels takes about 2 minutes on 2 cores (with CUDA for all cards 9 more)."
	$(BIN)/pip install --no-deps --no-build-isolation --editable . --config-settings=cmake.define.PYTRACE_WERROR=ON \
	  --config-settings=cmake.define.PYTRACE_CUDA=$(PYTRACE_CUDA)
	@touch $@

# Of packages with thousands of modules the tests import a few: those are compiled then. torch for CPUs is on PyTorch's own index
# (PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu), a tenth of the size of PyPI's, which is taken where pip does not find it.
$(VENV)/.ready-test: lock/test.txt lock/torch-cpu.txt lock/torch-cuda.txt $(VENV)/.ready
	$(LOCKED) --quiet --no-compile -r lock/torch-cpu.txt || { \
	  echo "pip finds no torch for CPUs: taking PyPI's, for CUDA, with NVIDIA's libraries (3 GB)"; \
	  $(LOCKED) --quiet --no-compile -r lock/torch-cuda.txt; }
	$(LOCKED) --quiet --no-compile -r $<
	@touch $@

$(VENV)/.ready-dev: lock/dev.txt $(VENV)/.ready-test
	$(LOCKED) --quiet -r $<
	@touch $@

$(VENV)/.ready-release: lock/release.txt $(VENV)/.ready-build
	$(LOCKED) --quiet -r $<
	@touch $@

$(SANITIZED)/.ready: $(VENV)/.ready-test $(CORE)
	@for library in libasan.so libubsan.so; do case "$$(g++ -print-file-name=$$library)" in /*) ;; *) \
	  echo "g++ has no $$library; on Debian: apt-get install g++ (on Fedora: dnf install libasan libubsan)" >&2; exit 1;; \
	esac; done
	$(BIN)/python -m venv --without-pip $(SANITIZED)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))' > \
	  "$$($(SANITIZED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/rest.pth"
	CXX=g++ $(BIN)/pip --python $(SANITIZED) install --no-deps --no-build-isolation --editable . \
	  --config-settings=build-dir=build/sanitize --config-settings=cmake.define.PYTRACE_SANITIZE=address,undefined \
	  --config-settings=cmake.define.PYTRACE_CUDA=off
	@touch $@

clean:
	rm -rf build dist .venv .venv-sanitize .pytest_cache .mypy_cache .ruff_cache
