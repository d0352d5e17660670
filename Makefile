# `make demo` shows it, `make test` tests it, `make lint` is what reviewers ask for.
# ARGS goes to the demo: `make demo ARGS=--once`.

.PHONY: build demo test lint clean

build:
	.ci/setup
	cargo build --release --bin s3mount

demo: build
	cargo build --release --package s3mount-testkit --bin s3mount-test-server
	cargo run --release --example demo -- $(ARGS)

test:
	.ci/setup test
	cargo test --workspace

lint:
	.ci/setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

clean:
	cargo clean
