#!/usr/bin/env bash
# `make demo`: brings in what is missing, builds, and shows the main job on an emulated 7200 rpm disk: a Python that imports much of its
# library, started cold, with `ahead`, and warm. Prints the table and writes report.html. It builds as the user who calls it or sudo, and calls
# sudo for the recording and the disk. Leaves nothing behind but the build and the report.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
quit() { echo "make demo: $*" >&2; exit 77; }

[ "$(uname -s)" = Linux ] || quit "it needs Linux"
if [ "${1:-}" != --show ]; then
	scripts/install-deps build demo
	# As the user behind sudo: files of root in target/ would stop the user's next build. A login shell has that user's PATH.
	user=()
	if [ "$(id -u)" = 0 ] && [ "${SUDO_UID:-0}" != 0 ]; then
		home=$(getent passwd "$SUDO_UID" | cut -d: -f6)
		user=(setpriv --reuid "$SUDO_UID" --regid "$SUDO_GID" --init-groups env HOME="$home" PATH="$home/.cargo/bin:$PATH")
		"${user[@]}" cargo --version >/dev/null 2>&1 || user=()
	fi
	"${user[@]}" scripts/need-cargo
	"${user[@]}" cargo build --release --locked -p ahead-cli -p ahead-lab-cli
	if [ "$(id -u)" = 0 ]; then exec "$0" --show; fi
	sudo -n true 2>/dev/null || { command -v sudo >/dev/null && [ -t 0 ]; } || quit "recording and the emulated disk need root: run 'sudo make demo'"
	say "sudo: the recording and the emulated disk need root"
	# This user's file, which root only writes into.
	: >report.html
	exec sudo env CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}" MODEL="${MODEL:-}" FS="${FS:-}" RUNS="${RUNS:-}" "$PWD/scripts/demo.sh" --show
fi

[ -e /dev/fuse ] || modprobe fuse || quit "the emulated disk needs FUSE, which this kernel has not"
ahead=${CARGO_TARGET_DIR:-target}/release/ahead
python=/usr/bin/python3
# The commands below are root's: a user's chroot is refused.
unset SUDO_USER SUDO_UID SUDO_GID

# On a tmpfs, so that the image stays in memory when caches are dropped.
home=$(mktemp -d /dev/shm/ahead-demo.XXXXXX)
mount=$home/disk
cleanup() {
	if [ -e "$home/attached" ]; then "$ahead" disk detach demo-$$ >/dev/null || "$ahead" restore >/dev/null; fi
	rm -rf --one-file-system "$home"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "An emulated 7200 rpm disk with a small Python on it"
mkdir "$mount"
touch "$home/attached"
"$ahead" disk create "$home/image" --name demo-$$ --size 1G --model "${MODEL:-hdd}" --fs "${FS:-ext4}" --mount "$mount"

copy() { # path: into the tree, with the directories above it
	mkdir -p "$mount$(dirname "$1")"
	cp -aL "$1" "$mount$1"
}
real=$(readlink -f "$python")
copy "$real"
library=$("$python" -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
mkdir -p "$mount$library"
cp -aL "$library/." "$mount$library" 2>/dev/null || true
{ ldd "$real"; find "$library" -name '*.so' -exec ldd {} +; } 2>/dev/null |
	grep -o '/[^ ]*' | grep -v ':$' | sort -u | while read -r file; do copy "$file"; done
sync

program="import asyncio, argparse, bz2, calendar, codeop, concurrent.futures, configparser, csv, ctypes, datetime
import dbm, decimal, difflib, dis, doctest, email.mime.text, encodings.idna, filecmp, fractions, ftplib, getpass, gettext
import glob, gzip, hashlib, hmac, html.parser, http.client, http.server, imaplib, importlib.metadata, inspect, ipaddress
import json, logging.handlers, lzma, mailbox, mimetypes, multiprocessing.pool, numbers, optparse, pathlib, pdb, pickle
import pkgutil, platform, plistlib, poplib, pprint, profile, pstats, pydoc, queue, random, sched, secrets, selectors
import shelve, shlex, smtplib, socketserver, sqlite3, ssl, statistics, string, subprocess, tarfile, tempfile
import textwrap, timeit, trace, tracemalloc, unittest.mock, urllib.request, uuid, wave, webbrowser, wsgiref.simple_server
import xml.dom.minidom, xml.etree.ElementTree, xml.sax, xmlrpc.client, zipapp, zipfile, zoneinfo"
command=(chroot "$mount" "$real" -I -W ignore -c "$program")

say "ahead record: what does it read?"
"$ahead" record --cold -o "$home/demo.ahead" -- "${command[@]}"
"$ahead" show "$home/demo.ahead" | head -24

say "ahead compare: cold, with ahead, and warm"
"$ahead" compare -p "$home/demo.ahead" --runs "${RUNS:-3}" --html "$home/report.html" -- "${command[@]}"
cat "$home/report.html" >report.html
say "report.html has the pictures"
