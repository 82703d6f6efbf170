from pathlib import Path

from sage.exhibits import restore_study
from sage.results import Results
from sage.runtime.job import job
from sage.tools.publish.material import read_material
from sage.tools.publish.sending import LOCAL, upload, write_publication

with job(snakemake):
    results, to = Results(Path(snakemake.params.folder)), snakemake.params.to
    material = read_material(restore_study(snakemake.params.study), results)
    files = write_publication(material, results.published, to or LOCAL, results)
    print(f"{len(files)} files in {results.published}", flush=True)
    if to:
        upload(material, results, results.published, to)
