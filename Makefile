# The house's commands. CMake and Ninja build; this only names the usual ways to call them.
SHELL := /bin/bash
PREFIX ?= /usr/local
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
ARGS ?=
BIN := build/release/tenon
# The cargo and rustc that scripts/setup chose come first.
export PATH := $(CURDIR)/.venv/tools:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup build install serve chat test bench bench-compare parity-full test-aarch64 lint format asan ubsan tsan fuzz clean

help:
	@echo 'make serve    set up, build and serve the default model on http://127.0.0.1:8080'
	@echo 'make chat     set up, build and talk to it in this terminal'
	@echo '              (ARGS="--model PATH --port 9000" goes to either)'
	@echo 'make build    set up and build build/release/tenon'
	@echo 'make install  install under PREFIX ($(PREFIX)); DESTDIR is honoured'
	@echo 'make test     every suite: unit, parity, http, contract'
	@echo 'make test-aarch64    the CPU kernels as an arm64 program, cross-compiled, under QEMU'
	@echo 'make parity-full     the slow laws: thousands of tokens in every mix'
	@echo 'make bench    tenon bench on the default model (ARGS as above)'
	@echo 'make bench-compare   Tenon beside llama.cpp and mlx-lm (ARGS="--repeat 5 --engines tenon,llama,mlx")'
	@echo 'make lint     formatting, house rules, clippy, clang-tidy where installed'
	@echo 'make format   rewrite sources as lint wants them'
	@echo 'make asan | ubsan | tsan   unit and http suites under a sanitizer'
	@echo 'make fuzz     the readers of files under libFuzzer (clang), SECONDS=60 each'
	@echo 'make clean    remove build/ (.venv and share/models stay)'

setup:
	@scripts/setup

# $(call compile,PRESET,TARGET): Ninja re-runs CMake by itself once it was configured.
define compile
	@test -f build/$(1)/build.ninja || cmake --preset $(1) -DCARGO=$(CURDIR)/.venv/tools/cargo
	@cmake --build --preset $(1) --target $(2) --parallel $(JOBS)
endef

build: setup
	$(call compile,release,tenon)

install: build
	@cmake --install build/release --prefix $(PREFIX)

serve: build
	@exec $(BIN) serve $(ARGS)

chat: build
	@exec $(BIN) chat $(ARGS)

bench: build
	@exec $(BIN) bench $(ARGS)

bench-compare: build
	@scripts/setup --dev
	$(call compile,release,bandwidth)
	@exec .venv/bin/python bench/compare $(ARGS)

test:
	@scripts/setup --dev
	$(call compile,release,all)
	@scripts/run-tests

parity-full:
	@scripts/setup --dev
	$(call compile,release,all)
	@scripts/run-tests --suites full

test-aarch64:
	@scripts/test-aarch64

# A file of options per sanitizer would be three more files; they are short enough to stand here.
asan ubsan tsan: export ASAN_OPTIONS := detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
asan ubsan tsan: export UBSAN_OPTIONS := print_stacktrace=1:halt_on_error=1
asan ubsan tsan: export TSAN_OPTIONS := halt_on_error=1:second_deadlock_stack=1
asan ubsan tsan:
	@scripts/setup --dev
	$(call compile,$@,all)
	@scripts/run-tests --preset $@ --suites unit,http

SECONDS ?= 60
fuzz: setup
	$(call compile,fuzz,fuzzers)
	@scripts/fuzz $(SECONDS)

lint:
	@scripts/lint

format:
	@find src tests bench \( -name '*.h' -o -name '*.cpp' \) -print0 | xargs -0 clang-format-19 -i
	@cd rust/textkit && cargo fmt

clean:
	rm -rf build
