#!/usr/bin/env bash
# `make bench-coldstart`: builds the programs, measures, and writes bench/results and docs/results.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "make bench-coldstart: it needs root (emulated disks, BPF, dropping caches)" >&2; exit 77; }
scripts/install-deps build test
command -v vmtouch >/dev/null || apt-get install -y --no-install-recommends vmtouch >/dev/null
cargo build --release --locked -p ahead-cli -p ahead-lab-cli
bench/coldstart/tree.sh
python3 bench/coldstart/run.py "$@"
python3 bench/overhead/run.py
python3 bench/coldstart/table.py
echo "docs/results/coldstart.md has the tables and pictures"
