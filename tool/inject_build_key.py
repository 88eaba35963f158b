"""Write the key of a release build into the package: the release pipeline's step before the wheel.

NPUMARK_BUILD_KEY=… python tool/inject_build_key.py
python tool/inject_build_key.py --key-file FILE
python -m build --wheel

The key is 32 random bytes as 64 hexadecimal digits (``openssl rand -hex 32``), kept where the
pipeline keeps its secrets. What is printed is its name, which tells nothing of it. The module is
ignored by git and is in no source distribution; whoever builds from source has a development build.

The key lies in the wheel as two halves, a random pad and the exclusive or with it, so that no
search for its digits finds it there or in a memory dump of the file. That is all it does: whoever
reads the module has the key, and can sign a record that no release build made. It is made for
telling edited and re-typed records from measured ones, not for stopping a person who takes the
package apart (docs/THREAT_MODEL.md).
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from npumark.errors import NpumarkError  # noqa: E402 - after the path is set
from npumark.record.build_key import unmask  # noqa: E402
from npumark.record.files import write_atomically  # noqa: E402
from npumark.record.signing import BuildKey  # noqa: E402

VARIABLE = "NPUMARK_BUILD_KEY"
MODULE = ROOT / "npumark" / "_build_key.py"

_FORM = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_FEWEST = 20
"""Different bytes in a key: 32 random ones have some 30, and fewer than this once in 10⁸ keys."""

_TEXT = '''"""This release build's key: ``PAD`` and ``MASKED`` by exclusive or. Never committed."""

PAD = bytes.fromhex("{pad}")
MASKED = bytes.fromhex("{masked}")
'''


def parsed(text: str) -> BuildKey:
    """Return the key that ``text`` spells. Raises ValueError where it is none, or no random one."""
    digits = text.strip()
    if not digits:
        raise ValueError("there is none")
    if not _FORM.fullmatch(digits):
        raise ValueError("it is not 64 hexadecimal digits")
    secret = bytes.fromhex(digits)
    if all(32 <= byte < 127 for byte in secret):
        raise ValueError("it is text in hexadecimal, and no random key")
    steps = {(b - a) % 256 for a, b in pairwise(secret)}
    if len(set(secret)) < _FEWEST or len(steps) < _FEWEST:
        raise ValueError("it repeats itself or counts, and is no random key")
    return BuildKey(secret)


def module_text(key: BuildKey, pad: bytes) -> str:
    """Return the module that holds ``key`` hidden by ``pad`` (32 bytes)."""
    return _TEXT.format(pad=pad.hex(), masked=unmask(pad, key.secret).hex())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--key-file", type=Path, help=f"read the key from here, not {VARIABLE}")
    place = parser.parse_args(argv).key_file
    where = str(place) if place else VARIABLE
    try:
        text = place.read_text("ascii") if place else os.environ.get(VARIABLE, "")
        key = parsed(text)
        raw = module_text(key, secrets.token_bytes(32)).encode()
        write_atomically(MODULE, raw, force=True)
    except (ValueError, OSError, NpumarkError) as fault:
        print(f"no build key from {where}: {fault}", file=sys.stderr)
        return 1
    print(key.key_id)
    return 0


if __name__ == "__main__":
    sys.exit(main())
