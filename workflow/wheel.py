"""What the package takes along of this repository when it is built: the workflow, in sage/project.

setuptools calls it (pyproject.toml). In a checkout the files stay where they are, and
`sage.runtime.files.ROOT` is either folder. Kept runs, tests and docs are left out.
"""

import subprocess
from pathlib import Path

from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
INSIDE = "sage/project"

TAKEN = (
    *("Snakefile", "workflow/Snakefile", "workflow/rules/*.smk", "workflow/scripts/*.py"),
    *("config/**/*", "profiles/*/*", "environment.yml", "pyproject.toml", "CITATION.cff"),
    # Templates, the paper's tables, what studies name in reports/, and measured times for `plan`.
    *("reports/*.j2", "reports/*.css", "reports/*.js", "reports/new_*", "reports/crate.json"),
    *("reports/known.jsonl", "reports/partials/*", "reports/captions/*", "reports/*/*.py"),
    *("reports/paper/*", "benchmarks/*_time.json"),
)
LEFT_OUT = ("config/schemas/*",)


def taken() -> list[Path]:
    """The files, from the repository's root."""
    found = {file for pattern in TAKEN for file in ROOT.glob(pattern) if file.is_file()}
    inside = (file.relative_to(ROOT) for file in found if "__pycache__" not in file.parts)
    return sorted(file for file in inside if not any(map(file.match, LEFT_OUT)))


class WithProject(build_py):
    """Builds the package with the files of TAKEN and the commit that it is built from."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for file, target in self._project().items():
            self.mkpath(str(Path(target).parent))
            self.copy_file(file, target)
        git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        try:
            commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return  # built from an archive of the source
        Path(self.build_lib, INSIDE, "commit").write_text(commit, encoding="utf-8")

    def get_source_files(self) -> list[str]:
        """What the source distribution holds too."""
        return [*super().get_source_files(), *map(str, taken()), "workflow/wheel.py"]

    def get_output_mapping(self) -> dict[str, str]:
        """Built files, with the source of each."""
        inside = {} if self.editable_mode else self._project()
        return super().get_output_mapping() | {target: file for file, target in inside.items()}

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Built files."""
        inside = [] if self.editable_mode else self._project().values()
        return [*super().get_outputs(include_bytecode), *inside]

    def _project(self) -> dict[str, str]:
        return {str(file): str(Path(self.build_lib, INSIDE, file)) for file in taken()}
