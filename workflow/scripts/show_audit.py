from pathlib import Path

from sage.evaluation.audit import render_audit
from sage.runtime.files import write_text_atomic

text = render_audit(Path(snakemake.input.counts), Path(snakemake.input.suspects))
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text)
