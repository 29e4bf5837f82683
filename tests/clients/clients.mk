# `make clients`: foreign clients and frameworks, each from its own registry, whose results are docs/ecosystem.md; the
# differential oracle beside Apache Kafka; the Spark source beside Spark's own connector, on a standalone cluster, on
# HDFS and on S3; the first hour of somebody who has the wheel.
CLIENTS := tests/clients
JAVA_RUNNER := $(CLIENTS)/java/target/.built
JS_RUNNER := $(CLIENTS)/js/node_modules/.package-lock.json
GO_MEMBER := $(CLIENTS)/go/target/member
FRAMEWORKS := $(CLIENTS)/frameworks/.venv/.installed
# Python's clients are tested by `make test`, too: here for docs/ecosystem.md.
PYTHON_CLIENTS := tests/integration/test_python_clients.py tests/integration/test_refused.py

.PHONY: clients clients-tools

clients: clients-tools $(VENV)/.dev $(JAVA_RUNNER) $(JS_RUNNER) $(GO_MEMBER) $(FRAMEWORKS)
	$(BIN)/python -m pytest -p tests.clients.recorder $(CLIENTS) $(PYTHON_CLIENTS) tests/first_hour \
		-m "clients or ecosystem" $(ARGS)

# All that is missing in one go, not one at a time.
clients-tools:
	@missing=0; \
	need() { command -v $$1 >/dev/null 2>&1 || { echo "make clients needs $$1: $$2" >&2; missing=1; }; }; \
	need java "a Java 17 or newer (Debian: apt install openjdk-17-jdk-headless)"; \
	need javac "a Java 17 or newer with its compiler (Debian: apt install openjdk-17-jdk-headless)"; \
	need mvn "Apache Maven (Debian: apt install maven)"; \
	need node "Node.js 18 or newer (Debian: apt install nodejs)"; \
	need npm "npm (Debian: apt install npm)"; \
	need go "Go 1.21 or newer, which fetches the one that go.mod names (https://go.dev/dl; Debian: apt install golang)"; \
	need kcat "kcat (Debian: apt install kcat)"; \
	exit $$missing

$(JAVA_RUNNER): $(CLIENTS)/java/pom.xml $(wildcard $(CLIENTS)/java/src/main/java/penstock/clients/*.java)
	mvn -q -B -f $(CLIENTS)/java/pom.xml package
	@touch $@

$(JS_RUNNER): $(CLIENTS)/js/package.json $(CLIENTS)/js/package-lock.json
	npm ci --prefix $(CLIENTS)/js --no-audit --no-fund --loglevel=error
	@touch $@

$(GO_MEMBER): $(wildcard $(CLIENTS)/go/*.go) $(CLIENTS)/go/go.mod $(CLIENTS)/go/go.sum
	cd $(CLIENTS)/go && go build -o target/member .

# They pin versions of the clients that the tests pin otherwise.
$(FRAMEWORKS): $(CLIENTS)/frameworks/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --quiet --disable-pip-version-check install -r $<
	@touch $@
