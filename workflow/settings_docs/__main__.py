"""Write the tables of config/README.md and docs/method.md, and the schemas of config/schemas.

Run it from the folder of the Snakefile after a type of the study has changed.
"""

from pathlib import Path

from workflow.settings_docs import markdown, methods, schemas
from workflow.settings_docs.sections import FILES


def documents(config: Path) -> dict[Path, str]:
    """What each generated file should hold, by its path in the folder `config`."""
    page, method = config / "README.md", config.parent / "docs/method.md"
    files = {
        config / "schemas" / f"{file.schema}.schema.json": schemas.text(file) for file in FILES
    }
    return {
        page: markdown.filled(page.read_text(encoding="utf-8")),
        method: methods.filled(method.read_text(encoding="utf-8"), config),
        **files,
    }


if __name__ == "__main__":
    for path, content in documents(Path("config")).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
