"""Python runs this at the start of each job of the tests' smoke study: it notes what the job took.

On PYTHONPATH only where SAGE_JOB_RECORD names a file. Each process that runs a script of the
workflow adds a line to it at its end: the script, seconds of processor, which heavy libraries were
loaded, whether it was forked. A job that shares imports has two: its own process and its fork.
"""

import atexit
import json
import os
import resource
import sys

HEAVY = ("torch", "transformers", "trl", "datasets", "scipy.stats", "matplotlib")


def note(forked: bool) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    line = {
        "job": os.path.basename(sys.argv[0]),
        "seconds": used.ru_utime + used.ru_stime,
        "heavy": [name for name in HEAVY if name in sys.modules],
        "forked": forked,
    }
    with open(os.environ["SAGE_JOB_RECORD"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


started = os.path.abspath(sys.argv[0] if sys.argv else "")
if "/.snakemake/scripts/" in started:
    atexit.register(note, False)
elif started.endswith("/fork_server.py"):
    os.register_at_fork(
        after_in_child=lambda: (atexit.unregister(note), atexit.register(note, True))
    )
