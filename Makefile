# Berth. `make help` lists what there is; `make demo` and `make check` are the two to start with.

SHELL := /bin/bash
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

VERSION := 0.1.0
BUILD ?= build
CC := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
DEV ?= 0
SAN ?=

# --- packages: installed when a header or program they bring is missing ---------------------------

PACKAGES := build-essential pkg-config libjansson-dev libssl-dev libssh2-1-dev libncurses-dev libxxhash-dev libcminpack-dev \
            libpcre2-dev libutf8proc-dev liburing-dev
TEST_PACKAGES := libcmocka-dev libvterm-dev openssh-server openssh-client tmux clang clang-format jq procps

DEPS_STAMP := build/.packages
TEST_DEPS_STAMP := build/.test-packages

# --- flags ----------------------------------------------------------------------------------------

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wundef
WARN += -Wno-format-nonliteral -Wno-unused-parameter -Wpointer-arith -Wwrite-strings -Werror
OPT := $(if $(SAN),-O1 -fno-omit-frame-pointer,-O2)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all)
CPPFLAGS := -I. -I$(BUILD)/gen -D_GNU_SOURCE -DBERTH_VERSION='"$(VERSION)"' -include base/banned.h
CFLAGS := -std=c11 -g $(OPT) $(WARN) $(SANFLAGS) -fno-math-errno -ffp-contract=off -pthread -MMD -MP
LDFLAGS := $(SANFLAGS) -pthread
ARCH := $(shell uname -m)

# --- sources --------------------------------------------------------------------------------------

FOLDERS := base inventory inventory/sources planner run kernels engine launcher cli tui
BERTH_FOLDERS := cli tui launcher run planner inventory/sources inventory base
ENGINE_FOLDERS := engine kernels run planner inventory base

src = $(wildcard $(1)/*.c)
# kernels/*_cpu.c are compiled once per instruction set, the rest once
VARIANTS := $(if $(filter x86_64,$(ARCH)),v2 v3 v4,base)
march_v2 := -march=x86-64-v2
march_v3 := -march=x86-64-v3
march_v4 := -march=x86-64-v4 -mprefer-vector-width=512
march_base :=
KERNEL_VARIANT_SRC := $(wildcard kernels/*_cpu.c)
KERNEL_VARIANT_OBJ := $(foreach v,$(VARIANTS),$(patsubst kernels/%.c,$(BUILD)/obj/kernels/%.$(v).o,$(KERNEL_VARIANT_SRC)))

objs = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out kernels/%_cpu.c cli/main.c engine/engine_main.c,$(call src,$(1)))) \
       $(if $(filter kernels,$(1)),$(KERNEL_VARIANT_OBJ)) \
       $(if $(wildcard $(1)/facts/*),$(BUILD)/obj/$(1)/facts.o)
lib = $(BUILD)/lib/$(subst /,_,$(1)).a
libs = $(foreach f,$(1),$(call lib,$(f)))

STATIC := -Wl,-Bstatic -ljansson -lpcre2-8 -lutf8proc -lcrypto -luring -Wl,-Bdynamic -lm
BERTH_LIBS := $(STATIC) -lssh2 -lncursesw -ltinfo -lcminpack
ENGINE_LIBS := $(STATIC)

# --- programs -------------------------------------------------------------------------------------

.PHONY: all help demo check check-san check-tsan check-clang lint unit clean golden bench format node-bundle cuda install
all: $(BUILD)/berth $(BUILD)/berth-engine $(BUILD)/berth.1

help:
	@echo 'make              build build/berth and build/berth-engine'
	@echo 'make demo         plan a small job, train it on two local SSH nodes, resume it elsewhere'
	@echo 'make check        build with gcc and clang, run every test that needs no GPU'
	@echo 'make check-san    the tests under address and undefined-behaviour sanitizers'
	@echo 'make check-tsan   the threads of engine and kernels under the thread sanitizer'
	@echo 'make fuzz         the parsers under the fuzzer of clang, FUZZ_SECONDS each'
	@echo 'make bench        speed as ratios against a peer or a physical limit'
	@echo 'make calibrate    fit the constants again to the published runs in planner/facts'
	@echo 'make golden       recompute reference numbers with PyTorch (needs Python and pip)'
	@echo 'make node-bundle  the tar that launch stages on nodes, with a manifest of hashes'
	@echo 'make install      into PREFIX (default /usr/local)'
	@echo 'make format       clang-format over the tree'
	@echo 'make clean        remove build/'

$(BUILD)/berth: $(BUILD)/obj/cli/main.o $(call libs,$(BERTH_FOLDERS))
	@echo '  LINK $@'
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(BERTH_LIBS)

$(BUILD)/berth-engine: $(BUILD)/obj/engine/engine_main.o $(call libs,$(ENGINE_FOLDERS))
	@echo '  LINK $@'
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ENGINE_LIBS)

$(BUILD)/berth.1: $(BUILD)/berth
	@BERTH_HOME='$$BERTH_HOME' $< help --man >$@

define lib_rule
$(call lib,$(1)): $(call objs,$(1))
	@mkdir -p $$(@D); rm -f $$@; ar rcs $$@ $$^
endef
$(foreach f,$(FOLDERS),$(eval $(call lib_rule,$(f))))

$(BUILD)/obj/%.o: %.c | $(DEPS_STAMP)
	@mkdir -p $(@D); echo '  CC   $<'
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(CFLAGS_$(subst /,_,$(*D))) -c -o $@ $<

CFLAGS_kernels := -O3
define variant_rule
$(BUILD)/obj/kernels/%.$(1).o: kernels/%.c | $(DEPS_STAMP)
	@mkdir -p $$(@D); echo '  CC   $$< ($(1))'
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(if $(SAN),-O1,-O3) -fno-trapping-math $(march_$(1)) -DK_VARIANT=$(1) -c -o $$@ $$<
endef
$(foreach v,$(VARIANTS),$(eval $(call variant_rule,$(v))))

# the commit, where there is one; rewritten only when it changes
$(BUILD)/gen/gen_commit.h: FORCE
	@mkdir -p $(@D)
	@c=$$(git rev-parse --short=12 HEAD 2>/dev/null || true); \
	  t="#define BERTH_COMMIT \"$$c\""; [ "$$t" = "$$(cat $@ 2>/dev/null)" ] || echo "$$t" >$@
$(BUILD)/obj/cli/cmd_version.o: $(BUILD)/gen/gen_commit.h
.PHONY: FORCE
FORCE:

# facts/NAME.EXT becomes embed_NAME_EXT (base/embed.h)
.PRECIOUS: $(BUILD)/obj/%.o
.SECONDEXPANSION:
# runs that constants are fitted to are read by make calibrate alone
$(BUILD)/obj/%/facts.o: $$(filter-out %/measured.csv,$$(wildcard $$*/facts/*)) | $(DEPS_STAMP)
	@mkdir -p $(@D); echo '  EMBED $*/facts'
	@{ echo '.section .rodata'; for f in $^; do s=embed_$$(basename $$f | tr '.-' '__'); \
	  echo ".globl $$s"; echo "$$s: .incbin \"$$f\""; echo "$${s}_end: .byte 0"; echo '.balign 8'; \
	  echo ".globl $${s}_len"; echo "$${s}_len: .quad $${s}_end - $$s"; done; \
	  echo '.section .note.GNU-stack,"",%progbits'; } > $(@:.o=.S)
	@$(CC) -c -o $@ $(@:.o=.S)

# again when the list above may have changed
$(DEPS_STAMP): Makefile ; @tests/lib/packages $@ $(PACKAGES)
# one after the other: the package manager lets only one work at a time
$(TEST_DEPS_STAMP): | $(DEPS_STAMP) ; @tests/lib/packages $@ $(TEST_PACKAGES)

# --- tests ----------------------------------------------------------------------------------------

UNIT_base := base
UNIT_inventory := inventory/sources inventory base
UNIT_planner := planner inventory base
UNIT_run := run planner inventory base
UNIT_kernels := kernels base
UNIT_engine := engine kernels run planner inventory base
UNIT_launcher := launcher run planner inventory base
UNIT_cli := cli launcher run planner inventory/sources inventory base tui
UNIT_tui := tui launcher run planner inventory/sources inventory base
UNIT_EXTRA_planner := -lcminpack
UNIT_EXTRA_kernels := -lstdc++
GPU_SRC := $(wildcard kernels/*.cu)
ON_CPU_OBJ := $(patsubst kernels/%.cu,$(BUILD)/obj/on_cpu/%.o,$(GPU_SRC)) $(BUILD)/obj/on_cpu/cuda_on_cpu.o \
              $(BUILD)/obj/tests/lib/gpu_on_cpu.o
UNIT_OBJ_kernels := $(ON_CPU_OBJ)
UNIT_OBJ_engine := $(ON_CPU_OBJ)
UNIT_EXTRA_launcher := -lssh2
UNIT_EXTRA_engine := -lstdc++ -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
UNIT_EXTRA_cli := -lssh2 -lncursesw -ltinfo -lcminpack
UNIT_EXTRA_tui := -lssh2 -lncursesw -ltinfo -lcminpack

UNIT_FOLDERS := $(foreach f,base inventory planner run kernels engine launcher cli tui,$(if $(wildcard tests/unit/$(f)/*.c),$(f)))
UNIT_BINS := $(foreach f,$(UNIT_FOLDERS),$(BUILD)/tests/unit_$(f))

# every file tests/unit/FOLDER/NAME.c defines int test_NAME(void), apart from helpers lib_*.c
tests_of = $(filter-out lib_%,$(basename $(notdir $(wildcard tests/unit/$(1)/*.c))))
$(BUILD)/gen/unit_%_main.c: $$(wildcard tests/unit/$$*/*.c)
	@mkdir -p $(@D)
	@{ for n in $(call tests_of,$*); do echo "int test_$$n(void);"; done; \
	   echo 'int main(void) { int bad = 0;'; \
	   for n in $(call tests_of,$*); do echo "bad += test_$$n();"; done; \
	   echo 'return bad != 0; }'; } > $@

define unit_rule
$(BUILD)/tests/unit_$(1): $(BUILD)/gen/unit_$(1)_main.c $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/unit/$(1)/*.c)) $(UNIT_OBJ_$(1)) $(call libs,$(UNIT_$(1)))
	@mkdir -p $$(@D); echo '  LINK $$@'
	@$(CC) $(LDFLAGS) -I. -o $$@ $$(filter %.c %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group -lcmocka $(STATIC) $(UNIT_EXTRA_$(1))
endef
$(foreach f,$(UNIT_FOLDERS),$(eval $(call unit_rule,$(f))))
$(BUILD)/obj/tests/%.o: tests/%.c | $(TEST_DEPS_STAMP)
	@mkdir -p $(@D); echo '  CC   $<'
	@$(CC) $(CPPFLAGS) $(CFLAGS) -Wno-missing-prototypes -I$(dir $<) -c -o $@ $<

# kernels of GPUs, run on the CPU; the fibers that stand for CUDA's threads are told of the thread
# sanitizer rather than watched by it
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
CXXFLAGS := -std=c++17 -g $(OPT) -Wall -Werror -ffp-contract=off -MMD -MP -I. -x c++
$(BUILD)/obj/on_cpu/%.o: kernels/%.cu | $(DEPS_STAMP)
	@mkdir -p $(@D); echo '  CXX  $<'
	@$(CXX) $(CXXFLAGS) $(SANFLAGS) -c -o $@ $<
$(BUILD)/obj/on_cpu/cuda_on_cpu.o: tests/lib/cuda_on_cpu.cc | $(DEPS_STAMP)
	@mkdir -p $(@D); echo '  CXX  $<'
	@$(CXX) $(CXXFLAGS) $(if $(filter thread,$(SAN)),-DON_CPU_TSAN,$(SANFLAGS)) -c -o $@ $<

# tests/fuzz/NAME.c defines LLVMFuzzerTestOneInput; its inputs are in tests/fuzz/corpus/NAME
FUZZ_NAMES := $(filter-out driver,$(basename $(notdir $(wildcard tests/fuzz/*.c))))
FUZZ_BINS := $(foreach f,$(FUZZ_NAMES),$(BUILD)/tests/fuzz_$(f))
FUZZ_LIBS := $(call libs,$(sort $(BERTH_FOLDERS) $(ENGINE_FOLDERS)))
.SECONDARY: $(foreach f,$(FUZZ_NAMES) driver,$(BUILD)/obj/tests/fuzz/$(f).o)
FUZZ_DRIVER ?= $(BUILD)/obj/tests/fuzz/driver.o
$(BUILD)/tests/fuzz_%: $(BUILD)/obj/tests/fuzz/%.o $(FUZZ_DRIVER) $(FUZZ_LIBS)
	@mkdir -p $(@D); echo '  LINK $@'
	@$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(BERTH_LIBS)

# FUZZ_SECONDS for each target with clang's fuzzer; new inputs stay in build/fuzz/corpus
FUZZ_SECONDS ?= 60
.PHONY: fuzz fuzz-run
fuzz: $(TEST_DEPS_STAMP)
	@$(MAKE) --no-print-directory BUILD=build/fuzz CC=clang SAN=fuzzer-no-link,address,undefined \
	  FUZZ_DRIVER= FUZZ_LINK=-fsanitize=fuzzer fuzz-run
fuzz-run: LDFLAGS += $(FUZZ_LINK)
fuzz-run: $(FUZZ_BINS)
	@for n in $(FUZZ_NAMES); do mkdir -p $(BUILD)/corpus/$$n; echo "fuzz $$n"; \
	  $(BUILD)/tests/fuzz_$$n -max_total_time=$(FUZZ_SECONDS) -max_len=65536 -verbosity=0 \
	    -artifact_prefix=$(BUILD)/$$n- $(BUILD)/corpus/$$n tests/fuzz/corpus/$$n || exit 1; done

# the program on a terminal in memory
SCREEN_BINS := $(patsubst tests/screen/%.c,$(BUILD)/tests/screen_%,$(wildcard tests/screen/*.c))
$(BUILD)/tests/screen_%: $(BUILD)/obj/tests/screen/%.o $(call libs,base)
	@mkdir -p $(@D); echo '  LINK $@'
	@$(CC) $(LDFLAGS) -o $@ $^ -lcmocka -lvterm -lutil $(STATIC)

unit: $(UNIT_BINS)
	@BUILD=$(BUILD) tests/run $(UNIT_BINS)

SCRIPT_TESTS := $(wildcard tests/cli/*.sh tests/screen/*.sh tests/e2e/*.sh)

lint:
	@tests/lint/all

check-clang: | $(TEST_DEPS_STAMP)
	@$(MAKE) --no-print-directory BUILD=build/clang CC=clang all

check: $(TEST_DEPS_STAMP)
	@$(MAKE) --no-print-directory all $(UNIT_BINS) $(SCREEN_BINS) $(FUZZ_BINS)
	@$(MAKE) --no-print-directory check-clang
	@$(MAKE) --no-print-directory cuda
	@BUILD=$(BUILD) tests/run tests/lint/all $(UNIT_BINS) $(SCREEN_BINS) $(FUZZ_BINS) $(SCRIPT_TESTS)

check-san: $(TEST_DEPS_STAMP)
	@$(MAKE) --no-print-directory BUILD=build/san SAN=address,undefined check-san-run

.PHONY: check-san-run
check-san-run: all $(UNIT_BINS) $(SCREEN_BINS) $(FUZZ_BINS)
	@BUILD=$(BUILD) TEST_TIMEOUT=1800 tests/run $(UNIT_BINS) $(SCREEN_BINS) $(FUZZ_BINS) $(SCRIPT_TESTS)

# by clang, whose threads of the sanitizer switch fibers fast; takes the better part of an hour
check-tsan: $(TEST_DEPS_STAMP)
	@$(MAKE) --no-print-directory BUILD=build/tsan CC=clang SAN=thread build/tsan/tests/unit_engine build/tsan/tests/unit_kernels
	@BUILD=build/tsan TEST_TIMEOUT=3600 CUDA_ON_CPU_SEED=1 tests/run build/tsan/tests/unit_engine build/tsan/tests/unit_kernels

# kernels of GPUs for every architecture we ship for, where nvcc is; nothing of it is needed to build
# or run. A register that is spilled, or a warning, is an error. What ptxas says is kept.
CUDA_ARCHS := 80 89 90a 100a 103a 120
CUDA_OBJ := $(patsubst kernels/%.cu,$(BUILD)/cuda/%.o,$(GPU_SRC))
NVCCFLAGS := -std=c++17 -O3 --fmad=false -I. -Xcompiler -fPIC -Werror all-warnings -Xptxas -v,-warn-spills,-warn-lmem-usage \
             $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_120,code=compute_120
$(BUILD)/cuda/%.o: kernels/%.cu
	@mkdir -p $(@D); echo '  NVCC $<'
	@nvcc $(NVCCFLAGS) -MD -MP -MF $(@:.o=.d) -MT $@ -c -o $@ $< 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas); exit 1; }
cuda:
	@if command -v nvcc >/dev/null; then $(MAKE) --no-print-directory cuda-built; else echo 'CUDA: not built (no nvcc)'; fi
.PHONY: cuda-built
cuda-built: $(CUDA_OBJ)
	@echo 'CUDA: kernels built for $(CUDA_ARCHS:%=sm_%) and PTX'

demo: all $(TEST_DEPS_STAMP)
	@tests/demo/run

# planner/facts/fitted.json from planner/facts/measured.csv
.PHONY: calibrate
calibrate: all
	@$(BUILD)/berth calibrate planner/facts/measured.csv --fresh --date $(CALIBRATION_DATE) -o planner/facts/fitted.json
CALIBRATION_DATE ?= 2026-11-30

golden: all
	@tests/golden/make

# every file tests/bench/NAME.c is a program of its own, apart from lib_bench.c
BENCH_LIB := $(BUILD)/obj/tests/bench/lib_bench.o
BENCH_BINS := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(filter-out tests/bench/lib_%,$(wildcard tests/bench/*.c)))
$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(BENCH_LIB) $(call libs,$(ENGINE_FOLDERS))
	@mkdir -p $(@D); echo '  LINK $@'
	@$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ENGINE_LIBS)

bench: all $(BENCH_BINS)
	@BUILD=$(BUILD) tests/bench/run

format:
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cc' | xargs clang-format -i

# what launch puts on nodes, for those who copy by hand: programs and a manifest of their hashes
node-bundle: $(BUILD)/node-bundle.tar
$(BUILD)/node-bundle.tar: $(BUILD)/berth-engine
	@cd $(BUILD) && sha256sum berth-engine > manifest.sha256 && tar -cf $(@F) berth-engine manifest.sha256
	@echo '  TAR  $@'

PREFIX ?= /usr/local
install: all
	install -D -m 755 $(BUILD)/berth $(DESTDIR)$(PREFIX)/bin/berth
	install -D -m 755 $(BUILD)/berth-engine $(DESTDIR)$(PREFIX)/libexec/berth/berth-engine
	install -D -m 644 $(BUILD)/berth.1 $(DESTDIR)$(PREFIX)/share/man/man1/berth.1
	for s in bash:bash-completion/completions/berth zsh:zsh/site-functions/_berth fish:fish/vendor_completions.d/berth.fish; do \
	  install -d $(DESTDIR)$(PREFIX)/share/$$(dirname $${s#*:}); \
	  $(BUILD)/berth completion $${s%%:*} >$(DESTDIR)$(PREFIX)/share/$${s#*:}; done

clean:
	rm -rf build

-include $(shell find $(BUILD)/obj $(BUILD)/cuda -name '*.d' 2>/dev/null)
