"""Print the C++ compiler for the core; if there is none, install zig's into .venv.

It is the first of these that compiles C++20: $CXX, c++, g++, clang++, zig from the package index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PROGRAM = "#include <bit>\nstatic_assert(std::bit_cast<int>(0.0f) == 0);\n"

# -mcpu=baseline: by default zig compiles for the processor of this machine, but the core must run
# on all of them. CMakeLists.txt adds options for the AVX2 and AVX-512 kernels. The cache is inside
# .venv.
WRAPPER = """#!/bin/sh
export ZIG_GLOBAL_CACHE_DIR='{folder}/cache'
exec '{python}' -m ziglang {tool} "$@"
"""
TOOLS = {"c++": "c++ -mcpu=baseline", "ar": "ar", "ranlib": "ranlib"}


def compiles(compiler: str) -> bool:
    command = [*compiler.split(), "-std=c++20", "-c", "-x", "c++", "-", "-o", os.devnull]
    try:
        return subprocess.run(command, input=PROGRAM.encode(), capture_output=True).returncode == 0
    except OSError:
        return False


def install_zig() -> str | None:
    """Install zig; return the path of its compiler, or None if the installation fails."""
    folder = Path(sys.prefix, "zig")
    if not (folder / "c++").exists():
        print("There is no compiler for C++20: installing zig's into", sys.prefix, file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "-c", "constraints.txt", "ziglang"]
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            return None
        folder.mkdir(exist_ok=True)
        for name, tool in TOOLS.items():
            script = folder / name
            script.write_text(WRAPPER.format(folder=folder, python=sys.executable, tool=tool))
            script.chmod(0o755)
    return str(folder / "c++")


def main() -> None:
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        sys.exit(
            "Python.h is missing: install Python's headers, "
            "for instance with apt-get install python3-dev."
        )
    given = os.environ.get("CXX")
    if given:
        if not compiles(given):
            sys.exit(f"CXX={given} does not compile C++20: set it to a compiler that does.")
        print(given)
        return
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name) and compiles(name):
            print(name)
            return
    zig = install_zig()
    if not zig:
        sys.exit("Install a C++ compiler, for instance with apt-get install g++.")
    print(zig)


if __name__ == "__main__":
    main()
