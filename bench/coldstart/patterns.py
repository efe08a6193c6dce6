#!/usr/bin/env python3
"""Writes a linker script that places functions side by side, by patterns of their names: patterns.py ORDER SYMBOLS.

ORDER: the functions in the order of their first use. SYMBOLS: all functions of the program. A name of the compiler ends in a hash, which changes
with the compiler, the features and the packages that are built together. The patterns leave the hashes out, so that the list fits other
builds. Where a pattern also fits many other functions (instances of one generic function), the name itself is listed, and the pattern last.
"""

import collections
import re
import sys

MOST_OTHERS = 2


def pattern(name: str) -> str:
    if name.startswith("_R"):  # Names of the newer kind: hashes of crates, and positions that follow from their lengths.
        name = re.sub(r"Cs[0-9a-zA-Z]*_(?=\d)", "Cs*_", name)
        name = re.sub(r"(?<=[A-Z\d])B[0-9a-zA-Z]*_", "B*_", name)
    name = re.sub(r"17h[0-9a-f]{16}E", "17h*E", name)
    # A number at the end distinguishes functions of the same name in different parts of the program.
    return re.sub(r"\.(llvm\.)?\d+$", ".*", name)


def main() -> None:
    wanted, functions = ([line.strip() for line in open(path)] for path in sys.argv[1:3])
    in_program = collections.Counter(map(pattern, functions))
    in_list = collections.Counter(map(pattern, wanted))
    # Without an underscore it is a function of C, whose sections have other names.
    wanted = [name for name in wanted if name.startswith("_")]
    is_common = {name: in_program[pattern(name)] - in_list[pattern(name)] > MOST_OTHERS for name in wanted}
    first = [name if is_common[name] else pattern(name) for name in wanted]
    last = [pattern(name) for name in wanted if is_common[name]]
    print("/* Written by bench/coldstart/order: see crates/cli/build.rs. */")
    # The C runtime's own code, without which each start would read two windows more.
    print("SECTIONS {\n  .init : { *(.init) }\n  .text.first : {\n    *crt1.o(.text)\n    *crtbegin*.o(.text)\n    *(.text.main)")
    for text in dict.fromkeys(first + last):
        print(f"    *(.text.{text} .text.unlikely.{text})")
    print("  }\n} INSERT BEFORE .text;")


main()
