#!/usr/bin/env bash
# `make bench-boot`: boots Debian trees on emulated disks, and writes bench/results/boot.json and docs/results/boot.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "make bench-boot: it needs root (emulated disks, systemd-nspawn, dropping caches)" >&2; exit 77; }
scripts/install-deps build boot
cargo build --release --locked -p ahead-cli -p ahead-lab-cli
replay=$(scripts/embedded | tail -n 1)
AHEAD_REPLAY=${replay##*: } bench/boot/run.py "$@"
bench/boot/table.py bench/results/boot.json docs/results/boot.md
