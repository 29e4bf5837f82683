# `make bench`                  everything, growth included: about an hour and 80 GB of disk at most
# `make bench PART=produce`     one part (produce consume requests latency start memory limit growth) or measurement
# `make bench QUICK=1`          small and few rounds, docs untouched;   `SCALE=0.1` shrinks, `PEERS=kafka` leaves one out
.PHONY: bench
bench: | .venv/bin/penstock
	.venv/bin/pip install -q -e '.[bench]'
	.venv/bin/python -m benchmarks.run $(PART:%=--part %) $(if $(QUICK),--quick) $(SCALE:%=--scale %) $(ROUNDS:%=--rounds %) $(PEERS:%=--peers %)
