#!/bin/sh
# dracut: starts the replay when the root file system is mounted. This file is sourced, so it must not exit.
[ ! -x /usr/lib/ahead/start-replay ] || /usr/lib/ahead/start-replay "$NEWROOT" || :
