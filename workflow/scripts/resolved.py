from pathlib import Path

from sage.rendering.markup import yaml_text
from sage.runtime.files import write_text_atomic

text = yaml_text(snakemake.params.study)
write_text_atomic(Path(snakemake.log[0]), text)
print(text, end="")
