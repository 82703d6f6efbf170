import sys
from pathlib import Path

from sage.runtime.files import write_text_atomic
from sage.tools.compare import compare

table = Path(snakemake.params.table)
text, agrees = compare(Path(snakemake.input.metrics), Path(snakemake.input.kept), table)
text += f"\nThe whole table: {table}"
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text, flush=True)
sys.exit(not agrees)
