# `make demo` shows it, `make test` tests it, `make lint` is what reviewers ask for.
# ARGS goes to the demo and the bench: `make demo ARGS=--once`, `make bench ARGS="4 streams"`.

# Concurrency under a model checker: locks are replaced, so it is a build of its own.
SHUTTLE = --package s3mount-memory --package s3mount-prefetch --package s3mount-fs \
	--features s3mount-memory/shuttle,s3mount-prefetch/shuttle,s3mount-fs/shuttle --test shuttle

.PHONY: build demo bench test soak fuzz lint advisories clean

build:
	.ci/setup
	cargo build --release --bin s3mount

demo: build
	cargo build --release --package s3mount-testkit --bin s3mount-test-server
	cargo run --release --example demo -- $(ARGS)

bench: build
	cargo build --release --package s3mount-testkit --bin s3mount-test-server
	cargo bench --bench e2e -- $(ARGS)

test:
	.ci/setup test
	cargo test --workspace
	cargo test $(SHUTTLE)

# Twenty minutes; `make test` has one.
soak:
	.ci/setup test
	S3MOUNT_SOAK_SECONDS=$(or $(SECONDS),1200) cargo test --test soak -- --nocapture

# Takes a nightly compiler and cargo-fuzz: `make fuzz ARGS="names -- -max_total_time=600"`.
fuzz:
	cargo +nightly fuzz run $(ARGS)

lint:
	.ci/setup deny
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy $(SHUTTLE) -- -D warnings
	cargo deny check --hide-inclusion-graph bans licenses sources

# Known holes in what we depend on, by RustSec's database on GitHub. Not a part of lint: what it says
# changes without a commit.
advisories:
	.ci/setup deny
	cargo deny check advisories

clean:
	cargo clean
