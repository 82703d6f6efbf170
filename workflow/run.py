"""Runs Snakemake with the given arguments, after releasing a lock that a killed one has left."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sage.runtime.survivors import Locked, release_stale_lock

try:
    if release_stale_lock(Path.cwd()):
        print("The lock of a Snakemake that was killed is released; its run continues.", flush=True)
except Locked as error:
    sys.exit(f"make: {error}")
os.execvp("snakemake", ["snakemake", *sys.argv[1:]])
