# The front door. CMake does the building (see CMakePresets.json); each target here is complete on a fresh machine.

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60

.PHONY: help setup model build demo test backends tsan fuzz bench oracle clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo    ask a real model about a text twice as long as its window (installs, builds, runs)'
	@echo 'make test    run every test, also under the address and undefined-behaviour sanitizers; some under that of threads'
	@echo 'make build   leave the program at build/longheads'
	@echo 'make model   fetch the default model, and the novels in which eval hides things, into the cache folder'
	@echo 'make backends  run the tests by each set of kernels that this processor runs, not the best alone'
	@echo 'make tsan    look for data races: the tests that work on several threads, under the thread sanitizer'
	@echo 'make fuzz    fuzz the parsers, FUZZ_SECONDS (60) each, and say what their seeds cover'
	@echo 'make bench   time single kernels against the bandwidth of the memory and the peak of products'
	@echo 'make oracle  make the committed goldens again by the programs they come from (several GB of Python packages)'
	@echo 'make clean   remove what was built; the cache folder stays'

setup:
	@sh tools/setup/install.sh

model: setup
	@sh tools/setup/fetch_model.sh --verify
	@test -f "$${XDG_CACHE_HOME:-$$HOME/.cache}/longheads/austen.txt" || sh tools/eval/text.sh austen || \
	  echo 'without these novels, longheads eval asks for --haystack FILE' >&2

build: setup
	@cmake --preset release
	@cmake --build --preset release --parallel $(JOBS) --target longheads

demo: build model
	@sh tools/demo/demo.sh

# Whether programs of the thread sanitizer run here: at fixed addresses, or at those that the kernel chooses.
tsan_runs = mkdir -p build-test && echo 'int main() {}' | $(CXX) -x c++ -fsanitize=thread -o build-test/probe - && \
  { setarch -R build-test/probe || build-test/probe; } 2>/dev/null

# One ctest over all builds: its last lines count all of them. Of the thread sanitizer's tests it has those of threads and
# pages; make tsan has all. What fails runs once more, for its output stands before thousands of other lines else.
test: setup model
	@cmake --preset release
	@cmake --build --preset release --parallel $(JOBS)
	@cmake --preset asan
	@cmake --build --preset asan --parallel $(JOBS)
	@mkdir -p build-test
	@echo 'subdirs("$(CURDIR)/build" "$(CURDIR)/build-asan")' > build-test/CTestTestfile.cmake
	@if $(tsan_runs); then \
	  cmake --preset tsan && cmake --build --preset tsan --parallel $(JOBS) --target base_test kv_test && \
	  echo 'subdirs("$(CURDIR)/build-tsan/src/base" "$(CURDIR)/build-tsan/src/kv")' >> build-test/CTestTestfile.cmake; \
	else \
	  echo 'The thread sanitizer does not run here (docs/testing.md, Threads): its tests are left out.'; \
	fi
	@ctest --test-dir build-test --parallel $(JOBS) --output-on-failure --no-tests=error --no-label-summary || { \
	  echo 'What failed runs once more, to be looked at: make test has failed whatever it gives now.'; \
	  ctest --test-dir build-test --rerun-failed --output-on-failure --no-label-summary; exit 1; }

# The scalar reference would take hours for the default model.
backends: setup model
	@cmake --preset release
	@cmake --build --preset release --parallel $(JOBS)
	@for backend in amx avx512bf16 avx512 avx2 ref; do \
	  without=; \
	  if [ $$backend = ref ]; then without='-LE default-model'; \
	  else LONGHEADS_BACKEND=$$backend build/longheads info >/dev/null || continue; fi; \
	  echo "by $$backend:"; \
	  LONGHEADS_BACKEND=$$backend ctest --preset release --parallel $(JOBS) --no-tests=error --no-label-summary $$without || exit 1; \
	done

tsan: setup
	@cmake --preset tsan
	@cmake --build --preset tsan --parallel $(JOBS)
	@ctest --preset tsan --parallel $(JOBS)

bench: build
	@build/longheads bench kernels

fuzz: setup
	@sh tools/setup/install.sh fuzz-packages.txt
	@bash tools/fuzz/run.sh $(FUZZ_SECONDS)

oracle: setup model
	@bash tools/oracle/run.sh

clean:
	rm -rf build build-asan build-fuzz build-test build-tsan
