# Tidepool. `make` builds what is there, `make run` shows it, `make test` proves it.
#   make [VARIANT=release|asan|tsan] [BUILD=dir] [CC=clang]
BUILD   ?= build
VARIANT ?= release
VENV    ?= $(BUILD)/venv
PREFIX  ?= /usr/local
PYTHON  ?= /usr/bin/python3
SHELL   := /bin/bash
.DEFAULT_GOAL := all

OUT := $(if $(filter release,$(VARIANT)),$(BUILD),$(BUILD)/$(VARIANT))
OBJ := $(OUT)/obj
GEN := $(BUILD)/gen

# ---- compiler -------------------------------------------------------------------------------
# Flags that decide what the core computes (no contraction, no fast math) hold everywhere.
PKGS     := libevent libevent_pthreads libnghttp2 libprotobuf-c jansson sqlite3 zlib libcrypto
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
            -Wwrite-strings -Wundef -Wvla -Wno-missing-field-initializers
CPPFLAGS += -D_GNU_SOURCE -I. -I$(GEN) $(PKG_CFLAGS)
CFLAGS   += -std=gnu17 -g -O2 -fno-omit-frame-pointer -ffp-contract=off -pthread $(WARNINGS)
LDFLAGS  += -pthread -rdynamic
LDLIBS   += $(PKG_LIBS) -ldl -lm
SANITIZE_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZE_tsan := -fsanitize=thread
CFLAGS   += $(SANITIZE_$(VARIANT))
LDFLAGS  += $(SANITIZE_$(VARIANT))
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS  := $(shell pkg-config --libs $(PKGS) 2>/dev/null)

# ---- rooms and their layers -------------------------------------------------------------------
# uses_<room> is what a room may include; libraries, unit tests and check-layers all follow it.
# `simulator` is `tidepool sim`: a room among the clients that plays traces through the core.
# `virtual` is `tidepool sim --serve`: the server's control API over virtual devices.
ROOMS := base core record net observe store device models serve train shim outside progress control rpc simulator virtual
uses_base    :=
uses_core    :=
uses_record  := core base
uses_net     := base
uses_observe := base
uses_store   := base
uses_device  := base observe
uses_models  := base
uses_serve   := device models observe base
uses_train   := device models observe base
uses_shim    := base
uses_outside := shim progress base
uses_progress := base
uses_control := serve train outside shim progress device models record core store observe base
uses_rpc     := control serve train outside shim progress device models net observe base proto
uses_simulator := record core base
uses_virtual   := simulator rpc control serve train outside shim progress device models record core store net observe proto base
dir_models    := models
dir_simulator := clients/sim
dir_virtual   := clients/virtual
$(foreach r,$(filter-out models simulator virtual,$(ROOMS)),$(eval dir_$r := server/$r))
$(foreach r,$(ROOMS),$(eval src_$r := $(shell find $(dir_$r) -name '*.c' 2>/dev/null | sort)))
src_shim      := $(filter-out server/shim/main.c,$(src_shim)) # a program of its own, beside the library

PROTOS   := $(shell find proto -name '*.proto' | sort)
GEN_C    := $(PROTOS:proto/%.proto=$(GEN)/%.pb-c.c)
GEN_H    := $(GEN_C:.c=.h)

objects   = $(patsubst %.c,$(OBJ)/%.o,$(1))
lib       = $(OUT)/lib/lib$(1).a
# A room with all that it may use, in link order (proto has no uses of its own).
closure   = $(1) $(uses_$(1))
libs_of   = $(foreach r,$(call closure,$(1)),$(call lib,$(r)))

define room_rules
$(call lib,$(1)): $(call objects,$(src_$(1)))
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room_rules,$r)))

$(call lib,proto): $(patsubst $(GEN)/%.c,$(OBJ)/gen/%.o,$(GEN_C))
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)ar rcs $@ $^

Q ?= @
# The optimizer's loops become vectors (twice the rate); IEEE arithmetic, so the bits stay.
$(OBJ)/models/native/%.o: CFLAGS += -O3 -fno-math-errno
$(OBJ)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(OBJ)/gen/%.o: $(GEN)/%.c Makefile | $(GEN_H)
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -Wno-error -MMD -MP -c -o $@ $<

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: proto/%.proto
	@mkdir -p $(@D)
	@echo "  PROTOC $<"
	$(Q)protoc-c --proto_path=proto --c_out=$(GEN) $<

# Rooms that include generated headers must wait for them on a first build.
$(call objects,$(src_rpc) $(shell find clients tests -name '*.c' 2>/dev/null) server/main.c): | $(GEN_H)

# ---- binaries ----------------------------------------------------------------------------------
SERVER_LIBS := $(foreach r,rpc control serve train outside shim progress device models record core store net observe proto base,$(call lib,$(r)))
# Each client program is its folder's main.c and the library of all other client code.
uses_clients := simulator shim proto base
dir_clients  := clients
src_clients  := $(filter-out $(src_simulator) $(src_virtual),$(shell find clients -name '*.c' ! -name main.c | sort))
$(eval $(call room_rules,clients))
CLIENT_LIBS := $(call libs_of,clients) $(call libs_of,simulator)
BINARIES := $(OUT)/tidepoold $(OUT)/tidepool-shim $(OUT)/tidepool $(OUT)/tidepool-load \
            $(OUT)/tidepool-virtual

all: $(BINARIES)

link = @echo "  LD $@"; $(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS)

$(OUT)/tidepoold: $(call objects,server/main.c) $(SERVER_LIBS)
	$(link)
# Runs beside each job for as long as that lasts: it has nothing but our own code and libc.
$(OUT)/tidepool-shim: LDLIBS :=
$(OUT)/tidepool-shim: $(call objects,server/shim/main.c) $(call libs_of,shim)
	$(link)
$(OUT)/tidepool: $(call objects,clients/cli/main.c) $(CLIENT_LIBS)
	$(link)
$(OUT)/tidepool-load: $(call objects,clients/load/main.c) $(CLIENT_LIBS)
	$(link)
$(OUT)/tidepool-demo: $(call objects,clients/demo/main.c) $(CLIENT_LIBS)
	$(link)
# Its serve and trainer are objects, not a library: they come before the real ones of the same
# functions, of which only what they leave open is linked.
$(OUT)/tidepool-virtual: $(call objects,$(src_virtual)) $(call lib,simulator) $(SERVER_LIBS)
	$(link)

# A test that stands still ends here, by name; each program takes far less (sanitizers included).
TEST_SECONDS ?= 600
BOUNDED = timeout --verbose --foreground --signal ABRT --kill-after 10 $(TEST_SECONDS)

# The page of `tidepool sim --html` is part of the binary.
$(OBJ)/clients/sim/report.o: clients/sim/report.html

# ---- unit tests ----------------------------------------------------------------------------------
# tests/unit/<room>/test_<file>.c tests that room's <file>.c and links what the room may use.
# Helpers shared by a room's tests: tests/unit/<room>/*.c without the test_ prefix.
define unit_rules
tests_$(1)   := $$(shell find tests/unit/$(notdir $(dir_$(1))) -name 'test_*.c' 2>/dev/null | sort)
helpers_$(1) := $$(shell find tests/unit/$(notdir $(dir_$(1))) -name '*.c' ! -name 'test_*.c' 2>/dev/null | sort)
$$(foreach t,$$(tests_$(1)),$$(eval $$(OUT)/$$(t:.c=): $$(call objects,$$(t) $$(helpers_$(1))) $$(call libs_of,$(1))))
tests-$(1): $$(tests_$(1):%.c=$$(OUT)/%)
check-$(1): $$(tests_$(1):%.c=$$(OUT)/%)
	@set -e; for t in $$^; do echo "== $$$$t"; \
	    TEST_VENV=$$(VENV) TEST_MODELS=$$(BUILD)/test-models $$(BOUNDED) $$$$t; done
endef
$(foreach r,$(ROOMS) clients,$(eval $(call unit_rules,$r)))
$(OUT)/tests/unit/%:
	@mkdir -p $(@D)
	@echo "  LD $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LDLIBS)

# They drive real shims.
$(tests_shim:%.c=$(OUT)/%) $(tests_outside:%.c=$(OUT)/%): | $(OUT)/tidepool-shim

tests-unit: $(foreach r,$(ROOMS) clients,tests-$(r))
check-unit: $(foreach r,$(ROOMS) clients,check-$(r))

# ---- the core by itself: schedules in virtual time, purity, equal decisions everywhere ------------
SIM_HELPERS := $(filter-out tests/sim/hash.c tests/sim/test_%,$(sort $(wildcard tests/sim/*.c))) $(helpers_core)
SIM_TESTS   := $(sort $(wildcard tests/sim/test_*.c))
$(foreach t,$(SIM_TESTS) tests/sim/hash.c,$(eval $(OUT)/$(t:.c=): $(call objects,$t $(SIM_HELPERS)) $(call lib,record) $(call lib,base) $(call lib,core)))
$(OUT)/tests/sim/%:
	@mkdir -p $(@D)
	@echo "  LD $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LDLIBS)

# Random events: a million, or with sanitizers a part of them; on all cores.
SIM_EVENTS ?= $(if $(filter release,$(VARIANT)),1000000,100000)
check-sim: $(SIM_TESTS:%.c=$(OUT)/%)
	@set -e; for t in $^; do echo "== $$t"; TIDEPOOL_SIM_EVENTS=$(SIM_EVENTS) $(BOUNDED) $$t; done

# Breaks the core on purpose, one way at a time; the tests must notice each. PART=N/M: every M-th
# from the N-th on; all take about two minutes, so make test takes every fourth, others at each commit.
MUTATIONS_NOW = $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
check-mutations: tests-core $(SIM_TESTS:%.c=$(OUT)/%) $(call lib,record)
	@python3 tests/sim/mutations/check.py --build $(OUT) --part $(or $(PART),0/1)

# What the core may ask of anybody: memory, strings, sorting, printing into a buffer.
CORE_MAY_USE := calloc malloc realloc free memcpy memmove memset memcmp strlen qsort snprintf vsnprintf \
                __assert_fail __udivti3 __umodti3 __udivmodti4 __stack_chk_fail _GLOBAL_OFFSET_TABLE_
check-core-pure: $(call lib,core)
	@nm $< | awk '$$1 == "U" { used[$$2] } NF == 3 && $$2 ~ /[TDBRVW]/ { own[$$3] } \
	  BEGIN { split("$(CORE_MAY_USE)", names, " "); for (i in names) may[names[i]] } \
	  END { for (u in used) if (!(u in own) && !(u in may)) { print "server/core uses " u; bad = 1 } exit bad }'

# The same schedule has the same hash of all actions in every build.
CORE_BUILDS := gcc_-O0 gcc_-O2 clang_-O2 clang_-O0 gcc_-O1_-fsanitize=address,undefined
check-core-hash:
	@mkdir -p $(OUT)/core-hash; set -e; first=; for build in $(CORE_BUILDS); do \
	  flags=$${build//_/ }; binary="$(OUT)/core-hash/$$build"; \
	  $$flags -std=gnu17 -ffp-contract=off -D_GNU_SOURCE -I. -o "$$binary" $(src_core) server/record/fields.c $(SIM_HELPERS) tests/sim/hash.c -lcmocka; \
	  hash=$$("$$binary"); echo "  $$hash $$flags"; : $${first:=$$hash}; \
	  [ "$$hash" = "$$first" ] || { echo "the core decides differently when built with: $$flags"; exit 1; }; \
	done

.PHONY: check-sim check-mutations check-core-pure check-core-hash all clean tests-unit check-unit $(foreach r,$(ROOMS) clients,check-$(r) tests-$(r))
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' -path '*/obj/*' 2>/dev/null)

# ---- damaged input: deterministic, bounded; each program prints its seed --------------------------
FUZZ_TESTS := $(sort $(wildcard tests/fuzz/fuzz_*.c))
$(foreach t,$(FUZZ_TESTS),$(eval $(OUT)/$(t:.c=): $(call objects,$t) $(call lib,simulator) $(SERVER_LIBS)))
$(OUT)/tests/fuzz/%:
	@mkdir -p $(@D)
	$(link)

check-fuzz: $(FUZZ_TESTS:%.c=$(OUT)/%)
	@set -e; for t in $^; do echo "== $$t"; $(BOUNDED) $$t; done

.PHONY: check-fuzz

# ---- the live view --------------------------------------------------------------------------------
# run [SECONDS=30]: serves and trains real data on this machine's cores; without SECONDS until q.
# A second make builds, because the first has read its libraries before deps installed them.
run: deps
	@$(MAKE) -s --no-print-directory -j$$(nproc) all $(OUT)/tidepool-demo $(OUT)/demo/digits.npy
	@$(OUT)/tidepool-demo --build $(OUT) --config config/demo.json $(if $(SECONDS),--seconds $(SECONDS))

$(OUT)/demo/digits.npy: config/demo/prepare.py
	@$(VENV)/bin/python $< $(@D)

.PHONY: run

# ---- the Python package ---------------------------------------------------------------------------
# Against a server that is played and against the real progress socket; its libraries (PyTorch and
# others) are played.
check-python: $(OUT)/tests/python/peer
	@TIDEPOOL_BUILD=$(abspath $(OUT)) $(BOUNDED) $(VENV)/bin/python -m pytest -o faulthandler_timeout=100 tests/python $(PYTEST)

$(OUT)/tests/python/peer: $(call objects,tests/python/peer.c) $(call libs_of,progress)
	@mkdir -p $(@D)
	$(link)

.PHONY: check-python

# ---- end to end, benchmarks ---------------------------------------------------------------------
# check-e2e [VARIANT=asan|tsan] [PYTEST=arguments]: real clients against the real server.
# A test that stands shows its stacks after 300 s.
e2e = TIDEPOOL_BUILD=$(abspath $(OUT)) TIDEPOOL_VARIANT=$(VARIANT) $(BOUNDED) $(VENV)/bin/python -m pytest \
      -o faulthandler_timeout=300 tests/e2e
check-e2e: TEST_SECONDS := 1500
check-e2e: all $(OUT)/tidepool-demo
	$(e2e) $(PYTEST)

# Hours rather than minutes: every case at its full size, on all builds.
test-long:
	$(MAKE) check-mutations
	for variant in release asan tsan; do \
	    TIDEPOOL_LONG=1 $(MAKE) check-e2e TEST_SECONDS=36000 VARIANT=$$variant || exit 1; done

# bench [ONLY="name …"] [BENCH=arguments]: figures into docs/benchmarks.md and build/bench.json.
BENCH_TOOLS := $(OUT)/tests/bench/onnx_direct $(OUT)/tests/bench/closed \
               $(OUT)/tests/bench/replay $(OUT)/tests/bench/echo $(OUT)/tests/bench/peer/peer \
               $(OUT)/tests/bench/dominance $(OUT)/tests/bench/core_event $(OUT)/tests/bench/studies
bench: all $(BENCH_TOOLS)
	TIDEPOOL_BUILD=$(abspath $(OUT)) $(VENV)/bin/python tests/bench/run.py \
	    --out $(BUILD)/bench.json $(if $(ONLY),--only $(ONLY)) $(BENCH)

$(OUT)/tests/bench/onnx_direct: $(call objects,tests/bench/onnx_direct.c) $(call libs_of,models)
	@mkdir -p $(@D)
	$(link)
# The wire: a saturating client, our wire layer by itself, the same service on gRPC C++.
$(OUT)/tests/bench/replay: $(call objects,tests/bench/replay.c) $(call lib,base)
	@mkdir -p $(@D)
	$(link)
$(OUT)/tests/bench/echo: $(call objects,tests/bench/echo.c) $(call lib,proto) $(call lib,net) $(call lib,base)
	@mkdir -p $(@D)
	$(link)
$(OUT)/tests/bench/peer/peer: tests/bench/peer/peer.cc proto/inference/inference.proto Makefile
	@mkdir -p $(@D)
	@echo "  C++ $<"
	$(Q)cd proto && protoc --cpp_out=$(abspath $(@D)) --grpc_out=$(abspath $(@D)) \
	    --plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin) inference/inference.proto inference/model_config.proto
	$(Q)g++ -std=c++17 -O2 -I$(@D) -pthread -o $@ $< $(@D)/inference/*.cc $$(pkg-config --libs grpc++ protobuf)

$(OUT)/tests/bench/closed: $(call objects,tests/bench/closed.c) $(CLIENT_LIBS)
	@mkdir -p $(@D)
	$(link)
# The scheduler beside other policies on one trace, in virtual time.
$(foreach t,dominance studies,$(eval $(OUT)/tests/bench/$t: $(call objects,tests/bench/$t.c) $(call libs_of,simulator)))
$(OUT)/tests/bench/dominance $(OUT)/tests/bench/studies:
	@mkdir -p $(@D)
	$(link)
# What an event costs the core.
$(OUT)/tests/bench/core_event: $(call objects,tests/bench/core_event.c tests/bench/crowd.c) \
                               $(call lib,core) $(call lib,base)
	@mkdir -p $(@D)
	$(link)

.PHONY: check-e2e test-long bench

# ---- what a fresh machine needs -----------------------------------------------------------------
# Debian's packages: to build, to run, to test, to compare with (libgrpc++, valgrind). Only missing
# ones are installed. Python packages are pinned in tests/requirements.txt and live in $(VENV).
# perf_analyzer: the package of that name on PyPI is an empty placeholder; see docs/benchmarks.md.
DEBIAN_BUILD := gcc make pkg-config libevent-dev libnghttp2-dev libprotobuf-c-dev \
                protobuf-c-compiler libjansson-dev libsqlite3-dev libssl-dev zlib1g-dev \
                libopenblas0-pthread libcmocka-dev python3 python3-venv
DEBIAN_TEST  := clang clang-format g++ libgrpc++-dev libprotobuf-dev protobuf-compiler \
                protobuf-compiler-grpc valgrind
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

deps: deps-debian $(VENV)/.ready onnxruntime-link

deps-debian:
	@missing=$$(for p in $(DEBIAN_BUILD) $(DEBIAN_TEST); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q '^install ok' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	    echo "Installing from Debian:" $$missing; \
	    $(SUDO) apt-get update -q && \
	    DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -q --no-install-recommends $$missing; \
	fi

$(VENV)/.ready: tests/requirements.txt
	@echo "Installing $$(wc -l < $<) pinned Python packages into $(VENV)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# The server looks for ONNX Runtime beside its binary: the wheel's library serves every variant.
onnxruntime-link: | $(VENV)/.ready
	@library=$$(ls $(abspath $(VENV))/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.* \
	    | head -n 1); test -n "$$library"; \
	for out in $(BUILD) $(BUILD)/asan $(BUILD)/tsan; do \
	    mkdir -p $$out/onnxruntime && ln -sfn "$$library" $$out/onnxruntime/libonnxruntime.so; done

# Python's ONNX Runtime, in tests and benchmarks, is not to report its use over the network.
export ORT_DISABLE_TELEMETRY := 1

# Small ONNX models for unit and end-to-end tests.
test-models: $(BUILD)/test-models/.ready
$(BUILD)/test-models/.ready: tests/models.py tests/unit/models/more_models.py
	@$(VENV)/bin/python tests/models.py $(@D)
	@$(VENV)/bin/python tests/unit/models/more_models.py $(@D)
	@touch $@
$(tests_models:%.c=$(OUT)/%) $(tests_serve:%.c=$(OUT)/%): | $(BUILD)/test-models/.ready

.PHONY: onnxruntime-link test-models

# ---- checks ---------------------------------------------------------------------------------------
check-layers:
	@tests/check-layers.sh $(foreach r,$(ROOMS) clients,'$r=$(dir_$r):$(uses_$r)')

format:
	clang-format -i $$(git ls-files '*.c' '*.h')
check-format:
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')

# ---- everything ---------------------------------------------------------------------------------
# All that a change must pass, on a fresh machine too. Sanitizers: memory in every room, threads in
# those that have threads. clang builds all of it as well, warnings being errors there too.
JOBS    := -j$(shell nproc)
THREADED := train base device net observe store serve outside control rpc
test: deps
	$(MAKE) $(JOBS) --no-print-directory all test-models
	$(MAKE) $(JOBS) --no-print-directory CC=clang BUILD=$(BUILD)/clang VENV=$(VENV) all
	$(MAKE) --no-print-directory check-layers check-format check-core-pure check-core-hash
	$(MAKE) --no-print-directory check-python
	$(MAKE) $(JOBS) --no-print-directory check-sim
	$(MAKE) $(JOBS) --no-print-directory check-mutations PART=$(MUTATIONS_NOW)/4
	$(MAKE) $(JOBS) --no-print-directory VARIANT=asan all tests-unit
	$(MAKE) $(JOBS) -Otarget --no-print-directory VARIANT=asan check-unit check-sim check-fuzz
	$(MAKE) $(JOBS) --no-print-directory VARIANT=tsan all $(THREADED:%=tests-%)
	$(MAKE) $(JOBS) -Otarget --no-print-directory VARIANT=tsan $(THREADED:%=check-%)
	$(MAKE) --no-print-directory VARIANT=tsan check-e2e
	$(MAKE) --no-print-directory VARIANT=asan check-e2e
	$(MAKE) --no-print-directory check-e2e

.PHONY: test

# ---- install ----------------------------------------------------------------------------------------
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/tidepool $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 755 $(BINARIES) $(DESTDIR)$(PREFIX)/bin
	install -m 644 config/*.json config/README.md $(DESTDIR)$(PREFIX)/share/tidepool
	sed 's#/usr/local/#$(PREFIX)/#' config/tidepool.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/tidepool.service

.PHONY: deps deps-debian check-layers check-format format install

clean:
	rm -rf $(filter-out $(VENV),$(wildcard $(BUILD)/*))
