#!/bin/bash
# dracut: puts ahead-replay into the image if `ahead boot install` has enabled the replay.

check() {
    [[ -x $dracutsysrootdir/usr/lib/ahead/ahead-replay ]] || return 1
    [[ -L $dracutsysrootdir/etc/systemd/system/sysinit.target.wants/ahead-boot-replay.service ]] || return 1
    return 0
}

depends() {
    return 0
}

install() {
    # An image without it starts, too: the replay begins later, by systemd.
    if inst_simple /usr/lib/ahead/ahead-replay && inst_simple /usr/lib/ahead/start-replay &&
        ln -sf ahead-replay "$initdir/usr/lib/ahead/@ahead-replay"; then
        inst_hook pre-pivot 10 "$moddir/ahead-replay.sh"
    else
        dwarn "ahead: /usr/lib/ahead cannot be copied into the image; the replay starts after the initramfs, by systemd"
    fi
    return 0
}
