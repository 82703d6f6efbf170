from pathlib import Path

from sage.claims.registration import summary
from sage.runtime.files import write_text_atomic

text = summary(Path(snakemake.params.file))
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text)
