"""Programs that are started in bench/everyday: copies of this machine's on the disk under test, with their libraries and data.

Each is started by its own file, as a user would; patchelf writes the directory of its libraries into it. The C library is that of the machine: other processes
have mapped it always. A program that is not installed is left out.
"""

import dataclasses
import pathlib
import shutil
import subprocess
import sys

import rig
from shared import fail, output, run

PYTHON = {
    "web": "http.server, ssl, urllib.request", "mail": "email.mime.multipart, smtplib, imaplib",
    "data": "json, csv, sqlite3, decimal, statistics", "test": "unittest, doctest, pdb", "tasks": "asyncio, concurrent.futures",
    "xml": "xml.etree.ElementTree, xml.sax, xml.dom.minidom",
    "pydoc": "pydoc, inspect", "archive": "zipfile, tarfile, lzma, bz2", "net": "ftplib, xmlrpc.client, telnetlib",
    "workers": "multiprocessing.pool, subprocess, pty", "lint": "lib2to3.refactor, lib2to3.pgen2.driver",
    "colours": "pygments.lexers, pygments.formatters",
    "settings": "yaml, configparser, tomllib", "certificates": "cryptography.x509",
    "pip": "pip._internal.cli.main", "setup": "setuptools, pkg_resources",
}
PERL = {"posix": "use POSIX; use Encode; use Storable;", "unicode": "use Unicode::UCD; Unicode::UCD::charinfo(65);",
        "manual": "use Pod::Man; use Pod::Text;", "ftp": "use IO::Socket; use Net::FTP; use Data::Dumper;"}
NODE = {"server": "require('http'); require('https');", "pack": "require('crypto').createHash('sha256'); require('zlib');",
        "prompt": "require('readline'); require('repl');"}
GIT = {"status": ["status", "--short"], "log": ["log", "-1", "--stat"], "files": ["ls-files"], "diff": ["diff", "HEAD"]}
# Further programs with their arguments; {home} is the directory on the disk.
OTHERS = {
    "cc1": ["-quiet", "{home}/src.i", "-o", "/dev/null"], "cc1plus": ["-quiet", "{home}/src.i", "-o", "/dev/null"],
    "cmake": ["-P", "{home}/script.cmake"], "ctest": ["--version"], "vim.basic": ["-es", "-u", "NONE", "-c", "syntax on", "-c", "q!", "{home}/src.c"],
    "busybox": ["awk", "BEGIN { print 1 }"], "openssl": ["dgst", "{home}/src.i"], "qemu-system-x86_64": ["--version"], "fio": ["--version"],
    "gpg": ["--version"], "x86_64-linux-gnu-objdump": ["-d", "{home}/src.o"], "ctags-universal": ["-f", "/dev/null", "{home}/src.c"],
    "x86_64-linux-gnu-as": ["{home}/src.s", "-o", "/dev/null"], "bash": ["-c", "echo {1..9}"], "zstd": ["-q", "-c", "{home}/src.i"],
}
SOURCE = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint main(void) { return puts(\"everyday\") < 0; }\n"


@dataclasses.dataclass(frozen=True)
class Start:
    """A program with its arguments."""

    name: str
    command: tuple
    environment: dict
    # The file that an update of the program replaces.
    main: pathlib.Path


class Tree:
    """The copies on a disk."""

    def __init__(self, home):
        self.home, self.libraries = home, home / "lib"
        self.libraries.mkdir()
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
        self.patchelf = rig.debian_program("patchelf") or fail("install patchelf")

    def copy(self, source):
        """A file with the libraries that it is linked with."""
        source = pathlib.Path(source).resolve()
        target = self.home / str(source).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        self.link(target)
        return target

    def link(self, program):
        """The program takes its libraries, and they theirs, from the disk."""
        self.copy_libraries(program)
        # Fails for a static program.
        subprocess.run([self.patchelf, "--force-rpath", "--set-rpath", self.libraries, program], stderr=subprocess.DEVNULL)

    def copy_libraries(self, *files):
        # A static program has none: status 1.
        linked = subprocess.run(["ldd", *map(str, files)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        for line in linked.splitlines():
            _, _, path = line.partition(" => ")
            path = pathlib.Path(path.split(" (")[0])
            if path.is_absolute() and path.name != "libc.so.6" and not (self.libraries / path.name).exists():
                shutil.copy2(path, self.libraries / path.name)

    def copy_directory(self, source, **options):
        target = self.home / str(source).lstrip("/")
        shutil.copytree(source, target, symlinks=True, ignore_dangling_symlinks=True, **options)
        self.copy_libraries(*target.rglob("*.so"))
        return target

    def script(self, name, text):
        path = self.home / name
        path.write_text(text)
        return path

    def start(self, name, program, *arguments, main=None, **environment):
        return Start(name, (str(program), *map(str, arguments)), {**self.environment, **environment}, main or program)


def python_starts(tree):
    interpreter = rig.copy_python(tree.home)[0]
    tree.link(interpreter)
    tree.copy_libraries(*(tree.home / "usr/lib").glob("python3*/lib-dynload/*.so"))
    packages = pathlib.Path("/usr/lib/python3/dist-packages")
    if packages.is_dir():
        tree.copy_directory(packages)
    for name, modules in PYTHON.items():
        script = tree.script(f"{name}.py", f"import {modules}\n")
        yield tree.start(f"python3 {name}.py", interpreter, "-I", script, main=script)


def perl_starts(tree):
    perl = tree.copy("/usr/bin/perl")
    inc = [pathlib.Path(path) for path in output("perl", "-e", 'print join "\n", @INC').split() if "/local/" not in path and path.startswith("/usr")]
    copies = []
    for path in dict.fromkeys(path.resolve() for path in inc if path.is_dir()):
        copies.append(str(tree.copy_directory(path)))
    for name, text in PERL.items():
        script = tree.script(f"{name}.pl", text + "\n")
        yield tree.start(f"perl {name}.pl", perl, script, main=script, PERL5LIB=":".join(copies))


def node_starts(tree):
    node = tree.copy("/usr/bin/node")
    for name, text in NODE.items():
        script = tree.script(f"{name}.js", text + "\n")
        yield tree.start(f"node {name}.js", node, script, main=script)


def git_starts(tree):
    git, options = tree.copy("/usr/bin/git"), rig.make_repository(tree.home)[1:]
    for name, arguments in GIT.items():
        yield tree.start(f"git {name}", git, *options, *arguments)


def other_starts(tree):
    source = tree.script("src.c", SOURCE)
    run("gcc", "-E", source, "-o", tree.home / "src.i")
    run("gcc", "-S", source, "-o", tree.home / "src.s")
    run("gcc", "-c", source, "-o", tree.home / "src.o")
    tree.script("script.cmake", "include(CMakePrintHelpers)\ninclude(CheckCCompilerFlag)\nmessage(done)\n")
    for directory in [*pathlib.Path("/usr/share").glob("cmake-*"), *pathlib.Path("/usr/share/vim").glob("vim[0-9]*")]:
        tree.copy_directory(directory)
    runtime = next((tree.home / "usr/share/vim").glob("vim[0-9]*"), tree.home)
    for name, arguments in OTHERS.items():
        path = output("gcc", f"-print-prog-name={name}").strip() if name.startswith("cc1") else shutil.which(name)
        if path and pathlib.Path(path).is_file():
            arguments = [word.replace("{home}", str(tree.home)) for word in arguments]
            yield tree.start(name, tree.copy(path), *arguments, VIMRUNTIME=str(runtime))


KINDS = [python_starts, perl_starts, node_starts, git_starts, other_starts]


def copy_programs(home, kinds=KINDS):
    """The programs on a disk, each started once, so that it has what it writes at its first start."""
    tree, starts = Tree(home), []
    for kind in kinds:
        needed = kind.__name__.partition("_")[0]
        if needed in ("other", "python") or shutil.which(needed):
            starts += kind(tree)
    works = []
    for start in starts:
        done = subprocess.run(start.command, env=start.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode == 0:
            works.append(start)
        else:
            print(f"left out: {start.name}: {done.stderr.decode()[-200:].strip()}", file=sys.stderr)
    rig.readable_to_all(home)
    return works
