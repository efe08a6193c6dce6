#!/usr/bin/env bash
# `make bench-steer`: builds the programs, measures, and writes bench/results/steer.json and docs/results/steer.md. Arguments go to run.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "make bench-steer: it needs root (emulated disks, control groups, ahead steer)" >&2; exit 77; }
scripts/install-deps build test steer
cargo build --release --locked -p ahead-cli -p ahead-lab-cli -p ahead-steer-cli
python3 bench/steer/run.py "$@"
python3 bench/steer/table.py
echo "docs/results/steer.md has the tables"
