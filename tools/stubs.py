"""Write src/drolearn/_core.pyi, the types of the core; with --check, only compare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

from drolearn import _core

STUB = Path(__file__).parents[1] / "src" / "drolearn" / "_core.pyi"


def generated() -> str:
    generator = StubGen(_core)
    generator.put(_core)
    text = "# Written by `make stubs`.\n" + generator.get()
    ruff = [Path(sys.executable).with_name("ruff"), "format", "--stdin-filename", STUB, "-"]
    done = subprocess.run(ruff, input=text.encode(), stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def main() -> None:
    if "--check" not in sys.argv:
        STUB.write_text(generated(), encoding="utf-8")
    elif not STUB.exists() or STUB.read_text(encoding="utf-8") != generated():
        sys.exit("src/drolearn/_core.pyi differs from the core: run make stubs and commit it.")


if __name__ == "__main__":
    main()
