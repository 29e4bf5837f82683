# make bench                  everything, growth included: about an hour, and 40 GB of disk for a while
# make bench PART=produce     one part (produce consume requests latency start memory limit groups cluster sdk spark growth) or measurement
# make bench QUICK=1          small, few rounds, docs untouched; SCALE=0.1 shrinks, ROUNDS=2, PEERS=kafka leaves one out
.PHONY: bench
$(VENV)/.bench: pyproject.toml $(VENV)/.dev
	$(PIP) install -e ".[dev,bench]"
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.run $(PART:%=--part %) $(if $(QUICK),--quick) $(SCALE:%=--scale %) \
		$(ROUNDS:%=--rounds %) $(PEERS:%=--peers %) $(ARGS)
