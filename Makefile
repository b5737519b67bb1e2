# Every task of the project. The work is done by scripts/ and by CMake presets; this file names them.
.DEFAULT_GOAL := help
PRESET ?= release

SECONDS ?= 60
EVERY ?= 1

.PHONY: help deps build demo check docs package format lint asan tsan fuzz faults clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## Install what building and checking need (Debian packages; asks for nothing that is there)
	scripts/install_deps build check python ranks demo page browser clients

build: ## Build build/release/rooflm and the tests (PRESET=dev|asan|tsan|cpu-only|all-gpus for another preset)
	scripts/install_deps build python page
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

demo: ## Train a small GPT on a real text, let it speak, and time both engines (CORPUS=path for your text)
	scripts/install_deps build demo page
	scripts/demo

check: ## Everything that must hold before a change goes in: builds, tests, format, lint, structure
	scripts/install_deps build check python ranks page browser clients
	scripts/check

docs: ## Build the documentation site in build/docs (MkDocs)
	@scripts/install_deps docs
	mkdocs build --strict --quiet

package: ## Build build/package/*.deb, *.tar.gz and *.whl: for any machine with AVX2, where nvcc works with all GPUs (GPUS=AUTO: those here)
	scripts/install_deps build python page package
	cmake --preset package $(if $(GPUS),-DROOFLM_CUDA_ARCHITECTURES=$(GPUS))
	cmake --build --preset package --target installed
	cd build/package && cpack
	scripts/bundle build/package build/package

format: ## Format all C++ sources in place
	scripts/format

lint: ## Run clang-tidy on the sources that changed since it last passed
	scripts/install_deps build check
	cmake --preset release
	scripts/lint build/release

asan: ## Build and run the tests with the address and undefined behaviour sanitizers
	scripts/install_deps build check
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan

tsan: ## Build and run the tests with the thread sanitizer, then servers and ranks under load (SECONDS of requests each)
	scripts/install_deps build check tsan
	cmake --preset tsan
	cmake --build --preset tsan
	ctest --preset tsan
	scripts/races $(SECONDS)

fuzz: ## Run each fuzz target for SECONDS (60): damaged files of every kind, under sanitizers
	scripts/install_deps build fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz
	scripts/fuzz $(SECONDS)

faults: ## Kill every writer at each EVERY-th (1) write, fsync and rename, go on after it, and count
	scripts/install_deps build
	cmake --preset release
	cmake --build --preset release --target rooflm fault_injector
	scripts/faults $(EVERY)

clean: ## Remove all that was built
	rm -rf build
