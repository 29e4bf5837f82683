# make soak PART=sim|groups|members|cluster|transactions|planted|faults|nearest|model|compaction|crash|zookeeper|starts|overload|abuse|fair|spark|kills|roundtrip|sparkmem    the long forms; each part under an hour, output kept under docs/evidence/
.PHONY: soak
PART ?= sim
SOAK_SEEDS ?= 5000
SOAK_FIRST_SEED ?= 0
SOAK_EXAMPLES ?= 50000
SOAK_RECORDS ?= 10000000
SOAK_KEYS ?= 10000000

# A failing part must fail the verb, although its output goes through tee.
soak: SHELL := /bin/bash
soak: .SHELLFLAGS := -o pipefail -c
soak: $(VENV)/.dev
	@case "$(PART)" in \
	sim) PENSTOCK_SIM_SEEDS=$(SOAK_SEEDS) PENSTOCK_SIM_FIRST_SEED=$(SOAK_FIRST_SEED) \
		PENSTOCK_SIM_MOVING_SEEDS=$$(($(SOAK_SEEDS) / 10)) $(BIN)/python -m pytest -n 2 -p no:randomly \
		tests/sim/test_broker.py tests/sim/test_compaction.py tests/sim/test_cluster_moves.py ;; \
	groups) PENSTOCK_SIM_SEEDS=$(SOAK_SEEDS) PENSTOCK_SIM_FIRST_SEED=$(SOAK_FIRST_SEED) \
		$(BIN)/python -m pytest -n 2 -p no:randomly tests/sim/test_groups.py ;; \
	members) $(BIN)/python -m pytest --timeout=3000 -m soak tests/integration/groups ;; \
	nearest) PENSTOCK_SIM_NEAR_SEEDS=$$(($(SOAK_SEEDS) / 5)) PENSTOCK_SIM_FIRST_SEED=$(SOAK_FIRST_SEED) \
		$(BIN)/python -m pytest -n 2 -p no:randomly --timeout=3500 tests/sim/test_cluster_nearest.py \
		tests/sim/test_cluster_retiring_near.py ;; \
	cluster) PENSTOCK_SIM_SEEDS=$(SOAK_SEEDS) PENSTOCK_SIM_FIRST_SEED=$(SOAK_FIRST_SEED) \
		$(BIN)/python -m pytest -n 2 -p no:randomly --timeout=3500 tests/sim/test_cluster.py tests/sim/test_cluster_groups.py \
		tests/sim/test_cluster_retiring.py tests/sim/test_cluster_hostile.py tests/sim/test_cluster_short.py \
		tests/sim/test_cluster_regrown.py \
		tests/sim/test_relay_commits.py tests/sim/test_archive_leaders.py tests/sim/test_archive_unclean.py \
		tests/sim/test_cluster_unclean.py tests/sim/test_cluster_compaction.py tests/sim/test_cluster_deletions.py \
		tests/sim/test_cluster_copying.py tests/sim/test_cluster_altered.py tests/sim/test_topics_again.py tests/sim/test_relay_lost.py \
		tests/sim/test_coordinator_again.py \
		tests/sim/test_cluster_dark_stories.py tests/sim/test_cluster_reopened.py ;; \
	transactions) PENSTOCK_SIM_SEEDS=$$(($(SOAK_SEEDS) / 5)) PENSTOCK_SIM_FIRST_SEED=$(SOAK_FIRST_SEED) \
		$(BIN)/python -m pytest -n 2 -p no:randomly --timeout=3500 tests/sim/test_cluster_transactions.py ;; \
	planted) $(BIN)/python -m pytest -n 2 -p no:randomly --timeout=3500 -rP -k "plant or test_the_checker or test_it_finds" \
		tests/sim tests/property tests/unit | grep -E "^_+ test|^found (by|at) seed|passed|failed" ;; \
	faults) $(BIN)/python -m pytest --timeout=3000 -s -vv -p no:randomly tests/integration/cluster \
		tests/integration/retiring 2>/dev/null ;; \
	model) PENSTOCK_MODEL_EXAMPLES=$(SOAK_EXAMPLES) PENSTOCK_FOLLOWER_SEEDS=$$(($(SOAK_EXAMPLES) / 10)) \
		$(BIN)/python -m pytest --timeout=3500 \
		tests/property/test_log_model.py tests/property/test_log_short.py tests/property/test_compaction_model.py \
		tests/property/test_copies_model.py tests/property/test_follower_log.py tests/property/test_log_planted.py ;; \
	crash) PENSTOCK_CRASH_ROUNDS=50 $(BIN)/python -m pytest --timeout=3000 tests/integration/test_crash.py ;; \
	zookeeper) $(BIN)/python -m pytest --timeout=3000 -m soak tests/unit/coordination ;; \
	starts) PENSTOCK_SIM_FIRST_SEED=$(SOAK_FIRST_SEED) $(BIN)/python -m pytest -n 2 -p no:randomly --timeout=3500 -m soak \
		tests/sim/test_start_durable.py ;; \
	compaction) PENSTOCK_COMPACTION_KEYS=$(SOAK_KEYS) $(BIN)/python -m pytest --timeout=3500 -s \
		tests/integration/test_compaction_load.py 2>/dev/null ;; \
	overload) $(BIN)/python -m pytest --timeout=3000 -m soak tests --ignore=tests/integration/spark \
		--ignore=tests/integration/groups --ignore=tests/integration/cluster --ignore=tests/integration/retiring \
		--ignore=tests/unit/coordination --ignore=tests/abuse \
		--ignore=tests/sim/test_start_durable.py ;; \
	abuse) $(BIN)/python -m pytest --timeout=3000 -s -vv -p no:randomly tests/abuse ;; \
	fair) $(BIN)/python -m tests.abuse.beside_kafka ;; \
	spark) $(BIN)/python -m pytest --timeout=3000 -m soak tests/integration/spark \
		--ignore=tests/integration/spark/test_archive_kills.py ;; \
	kills) $(BIN)/python -m pytest --timeout=3500 -s -m soak tests/integration/spark/test_archive_kills.py 2>/dev/null ;; \
	roundtrip) PENSTOCK_ROUND_TRIP_RECORDS=$(SOAK_RECORDS) $(BIN)/python -m pytest --timeout=3500 -s \
		tests/integration/spark/test_round_trip.py 2>/dev/null ;; \
	sparkmem) $(BIN)/python -m benchmarks.sparkmem ;; \
	*) echo "no such part: $(PART); there are sim, groups, members, cluster, transactions, planted, faults, nearest, model, compaction, crash, zookeeper, starts, overload, abuse, fair, spark, kills, roundtrip, sparkmem"; exit 2 ;; \
	esac | tee docs/evidence/$$(date +%F)-$(PART).txt
