import sys
from pathlib import Path

from sage.runtime.files import write_text_atomic
from sage.tools.verify import render, verify

folder = Path(snakemake.params.folder)
try:
    found = verify(folder, snakemake.params.data)
except FileNotFoundError as error:
    sys.exit(str(error))
text = render(folder, found)
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text, flush=True)
sys.exit(bool(found.faults))
