"""Which extra of this package has a package that is missing."""

import sys
from importlib import metadata


def lacking(error: ModuleNotFoundError, asker: str) -> str:
    """What to install where `asker` finds a package missing that an extra of this one has."""
    package = (error.name or "").partition(".")[0].replace("_", "-")
    try:
        asked = [one.replace("'", '"') for one in metadata.requires("sage-rlvr") or ()]
    except metadata.PackageNotFoundError:
        asked = []
    extras = [one.partition('extra == "')[2].rstrip('"') for one in asked if _names(one) == package]
    if not any(extras):
        return str(error)
    wanted = "train,workflow" if extras[0] in ("train", "workflow") else extras[0]
    return (
        f"{asker} needs the package {package}, which is not installed in {sys.prefix}: "
        f"pip install 'sage-rlvr[{wanted}]', or `make` in a clone of the repository"
    )


def _names(requirement: str) -> str:
    """The package that a requirement is of."""
    end = next((at for at, sign in enumerate(requirement) if sign in "[<>=!~; "), None)
    return requirement[:end].lower()
