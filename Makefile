# What there is to do here: `make help`. The work is in scripts/, so that each step can also be run by itself.

.PHONY: help install uninstall demo test soak test-again test-kernels test-restart bench bench-coldstart bench-boot bench-sim embedded deb
.PHONY: bench-library bench-steer bench-everyday test-deb test-start test-boot test-sanitizers lint dist guide fuzz install-lib

export PREFIX DESTDIR LIBDIR

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Build and install ahead, ahead-lab, ahead-steer, aheadd, the library for C, man pages, completions; PREFIX=/usr/local, DESTDIR= for packages
	@scripts/install
	@scripts/install-lib

install-lib: ## Build and install only the library for C: libahead.so.0, libahead.a, ahead.h, ahead.pc, man pages; LIBDIR=PREFIX/lib
	@scripts/install-lib

uninstall: ## Remove what `make install` with the same PREFIX has installed
	@scripts/install --remove
	@scripts/install-lib --remove

embedded: ## Build ahead-replay, which only replays: one static file of at most 1.5 MB; another machine: scripts/embedded TARGET
	@scripts/embedded

deb: ## Build the Debian packages ahead and ahead-lab for amd64 into target/deb (this installs nothing of ahead), and check them with lintian
	@scripts/deb

demo: ## Bring in what is missing, build, and show the main job on an emulated slow disk; sudo where root is needed
	@scripts/demo.sh

test: ## Bring in what is missing, check the style and run every test; as root with the privileged ones
	@scripts/test

soak: ## Properties, hostile input and kills on fresh seeds, for SOAK_SECONDS (3600); prints the seed of a failure
	@scripts/soak

test-again: ## The privileged tests, 20 rounds quiet and 20 with every processor busy; goes on where it was stopped
	@scripts/test-again

test-sanitizers: ## The library's tests under AddressSanitizer, with leaks, and ThreadSanitizer (the first build takes ten minutes)
	@scripts/test-sanitizers

test-kernels: ## Record and replay under Debian's packaged kernels, in QEMU
	@scripts/kernels/test

test-restart: ## Restart a Debian system in QEMU: what `ahead tune` keeps for LVM, RAID, btrfs, NFS, FUSE has to be there again
	@scripts/kernels/restart

test-start: ## Run the commands of README.md and docs/guide/first-start.md in clean Debian 12 and 13 trees, as a new user (root)
	@scripts/start-test

test-deb: ## Install, boot, upgrade and purge the Debian packages in Debian 12 and 13, in containers (root, minutes)
	@scripts/deb-test

test-boot: ## Boot Debian 12 and 13 with the package in QEMU: replay in the initramfs, upgrades, power cuts, full and read-only disks (root)
	@scripts/boot-test

bench: ## Run the jobs of `ahead bench` beside fio on an emulated disk; they have to agree
	@bench/fio/run

bench-coldstart: ## Measure nine real programs on emulated disks; writes docs/results
	@bench/coldstart/run.sh

bench-boot: ## Boot a Debian tree on emulated disks with and without a replay; writes docs/results/boot.md
	@bench/boot/run.sh

bench-library: ## Measure the library in real programs on emulated disks and the machine's disk; writes docs/results/library.md (root, hours)
	@bench/library/run.sh

bench-steer: ## Measure `ahead steer` and `ahead top` with unmodified programs; writes docs/results/steer.md (root, half an hour for each round)
	@bench/steer/run.sh

bench-everyday: ## Measure starts under the launch service, readers beside a prefetch, recordings by users; writes docs/results/everyday.md (root, hours)
	@bench/everyday/run.py

bench-sim: ## Measure how fast the simulator is
	@cargo bench -q -p ahead-sim

lint: ## Formatting, clippy, generated files and results, plain words, licences of dependencies
	@scripts/lint

dist: ## Write the table of metrics, the header of the library for C and its man pages
	@scripts/dist
	@scripts/c-header

guide: ## Run the commands that the guide shows, and put their output into its pages (root)
	@cargo build --release --quiet --locked -p ahead-cli -p ahead-lab-cli -p ahead-steer-cli -p ahead-service
	@scripts/guide-outputs

fuzz: ## Fuzz what reads untrusted input, one minute each (nightly)
	@scripts/fuzz
