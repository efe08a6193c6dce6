#!/usr/bin/env bash
# `make bench-library`: builds the programs, measures, and writes bench/results/library.json and docs/results/library.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "make bench-library: it needs root (emulated disks, dropping caches)" >&2; exit 77; }
scripts/install-deps build test
cargo build --release --locked -p ahead-cli -p ahead-lab-cli
# The release profile makes the commands small; programs that link the library are built for speed, as by cargo's default.
cargo build --locked --profile examples --config 'profile.examples.inherits="release"' --config profile.examples.opt-level=3 -p ahead-examples
CARGO_TARGET_DIR=target/library-tokio cargo build --release --locked --manifest-path bench/library/tokio/Cargo.toml ||
    echo "make bench-library: the reader of tokio could not be built; it is left out" >&2
python3 bench/library/run.py "$@"
python3 bench/library/table.py
echo "docs/results/library.md has the tables"
