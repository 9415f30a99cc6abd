"""Compile the inner loops of exported pages: assets/kernels.c to assets/kernels.js.

It needs clang with its linker for WebAssembly (Debian: clang, lld). Run it when kernels.c changes;
a test compares the digest that kernels.js carries.
"""

import subprocess
import tempfile
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from shutil import which

ASSETS = Path(__file__).parents[1] / "src" / "s4d_torch" / "deploy" / "export" / "web" / "assets"
LINKERS = ("wasm-ld", *(f"wasm-ld-{version}" for version in range(30, 13, -1)))
# Loops are written out by hand: a browser compiles up to 4096 bytes at once, without waiting.
FLAGS = "--target=wasm32 -O2 -msimd128 -std=c99 -Wall -Wextra -Werror -ffreestanding -fno-builtin"
COMPACT = "-fno-unroll-loops -fno-vectorize"
LINK = "--no-entry --import-memory --strip-all -z stack-size=0"
MOST = 4096


def compiled(source: Path) -> bytes:
    """The WebAssembly of a source."""
    linker = next((name for name in LINKERS if which(name)), None)
    if linker is None or which("clang") is None:
        raise SystemExit("clang or its linker wasm-ld is missing; install clang and lld")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        flags = [*FLAGS.split(), *COMPACT.split()]
        subprocess.run(
            ["clang", *flags, "-c", str(source), "-o", str(work / "kernels.o")], check=True
        )
        files = [str(work / "kernels.o"), "-o", str(work / "kernels.wasm")]
        subprocess.run([linker, *LINK.split(), *files], check=True)
        return (work / "kernels.wasm").read_bytes()


if __name__ == "__main__":
    source = ASSETS / "kernels.c"
    code = compiled(source)
    if len(code) > MOST:
        raise SystemExit(f"{len(code)} bytes of WebAssembly, and browsers compile {MOST} at once")
    digest = sha256(source.read_bytes()).hexdigest()
    text = b64encode(code).decode("ascii")
    lines = "\n".join(f'  + "{text[at : at + 92]}"' for at in range(0, len(text), 92))
    (ASSETS / "kernels.js").write_text(
        "// Compiled from kernels.c by python benchmarks/web_kernels.py; sha256 of that file:\n"
        f'// {digest}\nconst KERNELS = ""\n{lines};\n',
        encoding="utf-8",
    )
    print(f"{len(code)} bytes")
