"""Read-ahead inside a program, for Linux.

    ahead.open(path)                    a binary file object: one file, read from begin to end or in another regular way
    ahead.Prefetcher(paths)             the same paths in the same order, with their files read ahead
    ahead.advise(array, "sequential")   a context manager: mmap.mmap and numpy.memmap

A program knows its order of reads better than the kernel. Everything works without privileges; where read-ahead is not possible, programs
get the same bytes without it.
"""

import io as _io

from ._ahead import Advised, Budget, Prefetcher, Reader, __version__, advise, open

__all__ = ["Advised", "Budget", "Prefetcher", "Reader", "advise", "open"]

# It has the methods of io.BufferedReader, for programs that ask for the kind of a file object.
_io.BufferedIOBase.register(Reader)
