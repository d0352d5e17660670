# `make demo` shows a mount at work, `make test` runs all tests, `make lint` runs the checks of a review.
# ARGS holds arguments for the demo and the bench: `make demo ARGS=--once`, `make bench ARGS="4 streams"`.

# Tests under a model checker. It replaces the locks, so these tests are a build of their own. `--workspace` has the
# dependencies built as the other tests have them, so that they are not built again.
SHUTTLE = --workspace --features s3mount-memory/shuttle,s3mount-prefetch/shuttle,s3mount-fs/shuttle --test shuttle

.PHONY: build demo bench scale package release package-test book test csi-test soak fuzz lint advisories clean

# The test server and the demo are built with the product, because what they need has other features by itself, and would
# be built twice. `--package` leaves out what other crates of the workspace ask of the product's: the simulation has a disk
# cache without threads.
build:
	.ci/setup
	cargo build --release --package s3mount --package s3mount-testkit --bins

demo: build
	target/release/s3mount-demo $(ARGS)

bench: build
	cargo bench --package s3mount --bench e2e -- $(ARGS)

# The same work by 1, 2, 4 and so on, and all processors of this machine: `make scale ARGS="streams --peer MOUNT_S3"`.
scale: build
	cargo bench --package s3mount --bench e2e -- --scale $(ARGS)

# What users install, into dist/: a tarball, a .deb, an .rpm, a wheel and a Helm chart.
package:
	.ci/setup
	rm -rf dist
	packaging/build
	packaging/sign

# The same for x86-64 and aarch64, an image for containers, and what the program is made of. The digests are signed with
# a key of gpg: `make release SIGNING_KEY=0123ABCD`.
release:
	.ci/setup release
	rm -rf dist
	packaging/build x86_64
	packaging/build aarch64
	packaging/image
	packaging/sign

# Installs and uses each. Needs root, for mounts.
package-test:
	.ci/setup package
	packaging/test

# The documentation as a site, in target/book/site, with its links checked.
book:
	.ci/setup
	book/build

test:
	.ci/setup test
	cargo test --workspace
	S3MOUNT_TEST_FLAGS=--allow=write cargo test --workspace --test requests
	cargo test $(SHUTTLE)

# The CSI driver: the tests of `make test` that call it, with a longer life of a node from another seed, and the Helm
# chart, for which Helm is built (some minutes).
csi-test:
	.ci/setup test helm
	S3MOUNT_CSI_SEED=$$(date +%s) S3MOUNT_CSI_STEPS=300 cargo test --workspace --test mount csi
	packaging/helm/test

# The soak test for twenty minutes, and after it the simulation as long, from other seeds each time. `make test` runs
# the soak test for 40 seconds, and the simulation with 2,000 seeds.
soak:
	.ci/setup test
	S3MOUNT_SOAK_SECONDS=$(or $(SECONDS),1200) cargo test --test soak -- --nocapture
	S3MOUNT_SIM_SECONDS=$(or $(SECONDS),1200) S3MOUNT_SIM_SEEDS=1000000000 S3MOUNT_SIM_FIRST=$$(date +%s)000000 \
		cargo test --package s3mount-sim --test seeds no_seed -- --nocapture

# Needs a nightly compiler and cargo-fuzz: `make fuzz ARGS="names -- -max_total_time=600"`.
fuzz:
	cargo +nightly fuzz run $(ARGS)

lint:
	.ci/setup deny
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy $(SHUTTLE) -- -D warnings
	cargo deny check --hide-inclusion-graph bans licenses sources

# Known vulnerabilities of the dependencies, from RustSec's database on GitHub. This is not a part of lint,
# because its result changes without a commit.
advisories:
	.ci/setup deny
	cargo deny check advisories

clean:
	cargo clean
