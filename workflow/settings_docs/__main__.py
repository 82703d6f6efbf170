"""Write the schemas of config/schemas and the table of docs/method.md.

Run it from the folder of the Snakefile after a type of the study has changed.
"""

from pathlib import Path

from workflow.settings_docs import methods, schemas


def documents(config: Path) -> dict[Path, str]:
    """What each generated file should hold, by its path; `config` is the folder of that name."""
    method = config.parent / "docs/method.md"
    files = {
        config / "schemas" / f"{file.schema}.schema.json": schemas.text(file)
        for file in schemas.FILES
    }
    return {method: methods.filled(method.read_text(encoding="utf-8"), config), **files}


if __name__ == "__main__":
    for path, content in documents(Path("config")).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
