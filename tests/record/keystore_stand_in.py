"""Stands in for the process that asks the platform's keystore: the same questions and answers.

    keystore_stand_in.py FOLDER [how]

It keeps secrets as files in FOLDER. ``how``: what a real one does at its worst.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    folder, how = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    raw = sys.stdin.read()
    asked = json.loads(raw)
    with (folder / "asked.log").open("a") as log:
        line = {
            "do": asked["do"],
            "name": asked["name"],
            "argv": sys.argv,
            "alone": os.getsid(0) == os.getpid(),
        }
        log.write(json.dumps({**line, "environment": dict(os.environ)}) + "\n")
    if how == "hangs":
        time.sleep(600)
    if how == "leaves a hanging child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if how == "dies":
        os._exit(3)
    if how == "chatters":
        print("Welcome to the wallet")
    told = _answer(folder / asked["name"], asked, how)
    if how != "says nothing":
        print(json.dumps(told))


def _answer(file: Path, asked: dict[str, str], how: str) -> object:
    if how == "is locked" or how == f"refuses {asked['do']}":
        return {"error": "the keyring is locked\x1b[31m"}
    if asked["do"] == "put":
        if how != "forgets":
            file.write_text(asked["secret"] if how != "garbles" else "ff" * 32)
    elif asked["do"] == "remove":
        file.unlink()
    else:
        return {"secret": file.read_text() if file.exists() else None}
    return {"secret": None}


if __name__ == "__main__":
    main()
