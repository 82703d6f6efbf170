import sys
from pathlib import Path

from sage.runtime.files import write_text_atomic
from sage.tools.verify import render, verify

params, folder = snakemake.params, Path(snakemake.params.folder)
try:
    compared = verify(folder, params.today, params.unrecorded)
except FileNotFoundError as error:
    sys.exit(str(error))
text = render(folder, compared, params.again)
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text, flush=True)
sys.exit(bool(compared.faults or compared.unrecorded))
