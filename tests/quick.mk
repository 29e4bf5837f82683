# `make quick`: what tells most for the time, for every change before it is committed. At most 90 seconds on two cores:
# unit tests (but for Spark's and ZooKeeper's), properties with few examples, a handful of seeds of each simulation, and
# of each area that has them one test with real processes. Left out is what goes through every moment, story, codec or
# value, and would take longer than all the others. `make test` is the whole.
QUICK_LEFT_OUT := tests/unit/spark tests/property/test_codecs.py tests/property/test_columns.py \
	tests/unit/wire/test_codegen_fresh.py \
	tests/unit/client/test_interrupted_asking.py tests/unit/client/test_interrupted_rebalances.py \
	tests/unit/client/test_consumer_model.py tests/unit/client/test_async_model.py \
	tests/unit/storage/test_clean_stop.py tests/unit/storage/compaction/test_merged_holes.py
QUICK_SIM := \
	tests/sim/test_broker.py::test_nothing_acknowledged_is_lost_or_doubled \
	tests/sim/test_groups.py::test_one_owner_per_generation_and_no_commit_lost \
	tests/sim/test_cluster.py::test_nothing_acknowledged_is_lost_whoever_dies \
	tests/sim/test_compaction.py::test_each_key_keeps_its_latest_value
QUICK_PROCESSES := \
	tests/integration/test_admin_topics.py::test_confluent_kafka_creates_grows_describes_and_deletes \
	tests/integration/cli/test_messages.py::test_lines_come_back_in_order \
	tests/integration/test_compaction.py::test_what_was_compacted_survives_kill_and_restart \
	tests/integration/test_retention.py::test_what_exceeds_retention_bytes_goes_and_the_rest_stays \
	tests/integration/test_release_fixtures.py::test_a_node_opens_what_a_release_left \
	tests/integration/bad_input/test_frames.py::test_what_is_no_request_closes_the_connection_unanswered \
	tests/integration/groups/test_members.py::test_a_crashed_members_work_goes_on_where_it_committed \
	tests/integration/raw_client/test_reading.py::test_every_record_once_and_in_order \
	tests/integration/retiring/test_one_node.py::test_a_killed_broker_moves_the_rest_when_it_is_back \
	tests/integration/sdk/test_consumer.py::test_a_message_whose_body_raised_comes_again \
	tests/integration/sdk/test_producer.py::test_a_message_goes_where_its_delivery_says \
	tests/integration/cluster/test_fail_over.py::test_what_is_produced_to_three_replicas_is_read_back

.PHONY: quick

quick: $(VENV)/.dev
	@$(BIN)/python -m compileall -q src
	PYTHONDONTWRITEBYTECODE= PENSTOCK_SIM_SEEDS=4 PENSTOCK_MODEL_EXAMPLES=20 \
		$(BIN)/python -m pytest -n 2 -m "not clients and not soak" \
		-k "not zookeeper" --hypothesis-profile=quick $(addprefix --ignore=,$(QUICK_LEFT_OUT)) \
		--deselect tests/unit/records/test_batch.py::test_codecs_are_known_ones_and_control_batches_refused_whatever_else_is_set \
		tests/unit tests/property $(QUICK_SIM) $(QUICK_PROCESSES) $(ARGS)
