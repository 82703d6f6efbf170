"""Python runs this at the start of each job of the tests' smoke study: it notes what the job took.

On PYTHONPATH only where SAGE_JOB_RECORD names a file; scripts of the workflow add a line to it at
their end: their name, seconds of processor, and which heavy libraries were loaded.
"""

import atexit
import json
import os
import resource
import sys

HEAVY = ("torch", "transformers", "trl", "datasets", "scipy.stats", "seaborn", "matplotlib")


def note() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    line = {
        "script": os.path.basename(sys.argv[0]).split(".")[1],
        "seconds": used.ru_utime + used.ru_stime,
        "heavy": [name for name in HEAVY if name in sys.modules],
    }
    with open(os.environ["SAGE_JOB_RECORD"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if "/.snakemake/scripts/" in os.path.abspath(sys.argv[0] if sys.argv else ""):
    atexit.register(note)
