"""The Debian trees that the benchmark boots, each built once into AHEAD_CACHE."""

import os
import shutil
import subprocess
import sys

SUITE = "bookworm"
SYSTEM = ["systemd", "systemd-sysv", "dbus", "udev", "libpam-systemd", "login"]
# What is in a tree beside the system; a service that is installed is enabled.
TREES = {
    "minbase": [],
    "services": ["nginx-light", "postgresql", "network-manager"],
}


def run(*command, **options):
    options = {"check": True, "stdout": subprocess.PIPE, "text": True} | options
    return subprocess.run([str(word) for word in command], **options)


def mirror():
    targets = run("apt-get", "indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)", "Created-By: Packages").stdout
    mirrors = [line.split()[0] for line in targets.splitlines() if line.split()[1:] == [SUITE, "main"]]
    found = os.environ.get("AHEAD_MIRROR") or (mirrors[0] if mirrors else None)
    if found is None:
        sys.exit(f"bench-boot: apt on this machine knows no {SUITE}: set AHEAD_MIRROR to a Debian mirror's address")
    return found


def tree(cache, name):
    """The directory of the tree."""
    directory = cache / f"boot-{SUITE}-{name}"
    if (directory / "done").exists():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    print(f"bench-boot: bootstrapping {SUITE} into {directory}", file=sys.stderr)
    packages = ",".join(SYSTEM + TREES[name])
    run("debootstrap", "--variant=minbase", f"--include={packages}", SUITE, directory, mirror(), stdin=subprocess.DEVNULL)
    for archive in (directory / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    (directory / "etc/machine-id").write_text("")
    (directory / "done").touch()
    return directory
