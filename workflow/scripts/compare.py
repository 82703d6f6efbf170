import sys
from pathlib import Path

from sage.runtime.files import write_text_atomic
from sage.tools.kept_run import compare

params = snakemake.params
try:
    text, agrees = compare(Path(params.metrics), Path(snakemake.input.kept), Path(params.table))
except ValueError as error:
    text, agrees = str(error), False
else:
    text += f"\nThe whole table: {params.table}"
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text, flush=True)
sys.exit(not agrees)
