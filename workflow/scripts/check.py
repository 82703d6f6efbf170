import sys
from pathlib import Path

from sage.exhibits import restore_study
from sage.results import Results
from sage.runtime.files import write_text_atomic
from sage.tools.check import Machine, check, render_findings

study, params = restore_study(snakemake.params.study), snakemake.params
results = Results(Path(params.folder))
machine = Machine(results, params.device, params.gpu_limit, params.executor)
findings = check(study, machine)
text = render_findings(study, findings)
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text, flush=True)
sys.exit(any(finding.state == "failed" for finding in findings))
