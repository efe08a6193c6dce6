#!/bin/sh
# Builds the Debian tree in which the cold-start benchmark runs its programs, and packs it.
#
#   tree.sh      build missing parts, run every program once, pack; prints the path of the archive
#
# The tree lives outside the repository, in ${AHEAD_CACHE:-/var/cache/ahead}:
#
#   tree/        the tree itself (do not run the benchmark in it: copy it onto the disk under test)
#   tree.tar     the same as an archive, sorted by name; unpack with `tar --numeric-owner -xf`
#   steps/       one mark per step that is done; a step is repeated when its inputs change
#
# The steps run in order: packages -> files -> data -> check -> pack. All packages come from the apt sources of this
# machine, with its apt configuration; another list of packages means a new tree. Mounts are made in a mount namespace
# of this script, so none remains after its end.
set -eu

suite=bookworm
here=$(cd "$(dirname "$0")" && pwd)
cache=${AHEAD_CACHE:-/var/cache/ahead}
tree=$cache/tree
steps=$cache/steps

packages="python3 python3-numpy python3-yaml python3-jinja2 python3-requests python3-sqlalchemy python3-lxml
git gcc libc6-dev
openjdk-17-jre-headless
nodejs webpack
libreoffice-writer-nogui fonts-dejavu-core
chromium
sqlite3 postgresql-15"

unavailable() {
    echo "tree.sh: $1" >&2
    exit 77
}

say() {
    echo "tree.sh: $1" >&2
}

[ "$(id -u)" = 0 ] || unavailable "needs root to bootstrap a Debian tree: run it with sudo"
for tool in debootstrap apt-get unshare chroot tar sha256sum python3; do
    command -v "$tool" >/dev/null || unavailable "needs $tool: apt-get install debootstrap util-linux coreutils tar python3"
done

# The mounts below must end with this script, however it ends.
if [ -z "${AHEAD_TREE_NAMESPACE:-}" ]; then
    AHEAD_TREE_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi

# The mirror for $suite. Debian machines of another release name their mirror in AHEAD_MIRROR.
mirror() {
    if [ -n "${AHEAD_MIRROR:-}" ]; then
        echo "$AHEAD_MIRROR"
        return
    fi
    apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite=$suite '$2 == suite && $3 == "main" { print $1; exit }'
}

# done_already STEP INPUTS: whether STEP was done with exactly these inputs; STEP is then marked by `mark STEP INPUTS`.
done_already() {
    [ "$(cat "$steps/$1" 2>/dev/null)" = "$2" ]
}

mark() {
    echo "$2" >"$steps/$1"
}

digest() {
    cat "$@" | sha256sum | cut -d' ' -f1
}

in_tree() {
    chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root \
        DEBIAN_FRONTEND=noninteractive "$@"
}

# apt inside the tree uses this machine's configuration and sources during the installation of packages, and not
# afterwards.
borrow_apt() {
    mkdir -p "$tree/etc/apt/apt.conf.d" "$tree/etc/apt/sources.list.d"
    if [ -z "${AHEAD_MIRROR:-}" ]; then
        rm -f "$tree/etc/apt/sources.list"
        for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
            [ ! -e "$file" ] || cp "$file" "$tree$file"
        done
        cp -r /usr/share/keyrings/. "$tree/usr/share/keyrings/"
    fi
    cp /etc/apt/apt.conf.d/* "$tree/etc/apt/apt.conf.d/"
    cp /etc/resolv.conf /etc/hosts "$tree/etc/"
}

return_apt() {
    in_tree apt-get clean
    rm -rf "$tree/etc/apt/sources.list" "$tree"/etc/apt/sources.list.d/* "$tree"/var/lib/apt/lists/* \
        "$tree/etc/apt/apt.conf.d/99"* "$tree/etc/resolv.conf"
    echo "127.0.0.1 localhost" >"$tree/etc/hosts"
}

bootstrap() {
    from=$(mirror)
    [ -n "$from" ] || unavailable "apt on this machine knows no $suite: set AHEAD_MIRROR to a Debian mirror's address"
    say "bootstrapping $suite into $tree"
    rm -rf "$tree" "$steps"
    mkdir -p "$tree" "$steps"
    debootstrap --variant=minbase "$suite" "$tree" "$from" >&2
}

install_packages() {
    inputs=$(echo "$suite $packages" | digest)
    done_already packages "$inputs" && return
    bootstrap
    say "installing packages"
    borrow_apt
    # The packages start no service and create no database cluster.
    printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
    chmod 755 "$tree/usr/sbin/policy-rc.d"
    mkdir -p "$tree/etc/postgresql-common"
    echo "create_main_cluster = false" >"$tree/etc/postgresql-common/createcluster.conf"
    mount -t proc proc "$tree/proc"
    in_tree apt-get update -q >&2
    # shellcheck disable=SC2086 # a list of packages
    in_tree apt-get install -q -y --no-install-recommends $packages >&2
    umount "$tree/proc"
    return_apt
    mark packages "$inputs"
}

copy_files() {
    # shellcheck disable=SC2046 # no file of ours has a blank in its name
    inputs=$(cd "$here/files" && digest $(find . -type f | LC_ALL=C sort))
    done_already files "$inputs" && return
    say "copying the programs' inputs"
    cp -r "$here/files/." "$tree/"
    mark files "$inputs"
}

make_data() {
    inputs=$(digest "$here/data.sh")
    done_already data "$inputs" && return
    say "making the programs' data"
    cp "$here/data.sh" "$tree/srv/data.sh"
    in_tree sh /srv/data.sh >&2
    rm "$tree/srv/data.sh"
    mark data "$inputs"
}

check_programs() {
    inputs="$(cat "$steps/packages" "$steps/files" "$steps/data") $(digest "$here/programs.toml" "$here/check.py")"
    done_already check "$inputs" && return
    say "running every program once"
    # Inside this script's mount namespace; the programs of the benchmark itself mount the same (see programs.toml).
    python3 "$here/check.py" "$tree" >&2
    mark check "$inputs"
}

pack() {
    inputs="$(cat "$steps/packages" "$steps/files" "$steps/data")"
    done_already pack "$inputs" && return
    say "packing"
    rm -rf "$tree"/tmp/* "$tree"/var/tmp/* "$tree"/var/log/*
    in_tree dpkg-query -W >"$cache/tree.packages"
    tar --sort=name --numeric-owner --xattrs -C "$tree" -cf "$cache/tree.tar.new" .
    mv "$cache/tree.tar.new" "$cache/tree.tar"
    mark pack "$inputs"
}

mkdir -p "$cache"
install_packages
mount -t proc proc "$tree/proc"
mount -t tmpfs -o mode=1777 tmp "$tree/tmp"
copy_files
make_data
check_programs
umount "$tree/tmp" "$tree/proc"
pack
say "$(du -sm --apparent-size "$tree" | cut -f1) MB in $(find "$tree" -xdev | wc -l) files and directories"
echo "$cache/tree.tar"
