#!/usr/bin/env bash
# `make bench-boot`: boots a Debian tree on emulated disks, and writes docs/results/boot.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "make bench-boot: it needs root (emulated disks, systemd-nspawn, dropping caches)" >&2; exit 77; }
scripts/install-deps build boot
cargo build --release --locked -p ahead-cli -p ahead-lab-cli
bench/boot/run.py --document docs/results/boot.md "$@"
