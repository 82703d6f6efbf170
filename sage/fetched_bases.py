"""Where pretrained models come from: the hub, its mirror, a Python package, one's own folder; and
bases from scratch that come with the repository, so that a study need not pretrain them again.

Every base ends as a folder of its own with safetensors and a tokenizer, in which nothing
can be executed: no pickles, no code of the repository.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from safetensors import safe_open

from sage.problems.fetching import mirror_folder, silence
from sage.runtime.faults import Damaged, Fault
from sage.runtime.files import atomic_directory
from sage.runtime.identity import code_digest, digest
from sage.runtime.manifest import Manifest
from sage.study.bases import FolderBase, ScratchBase

KEPT = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.jinja", "*.model"]


class NoBase(Fault, FileNotFoundError):
    """A base cannot be had; the message says from where, and what to do."""


def fetch_base(base: Mapping[str, Any], output: Path, manifest: Manifest) -> None:
    """Bring a base (`HubBase`, `PackageBase` or `FolderBase`, as a mapping) into `output`.

    Raises NoBase if it is neither in the mirror nor on the hub, if the package does not hold the
    file, or if the folder is not that of a checkpoint.
    """
    with atomic_directory(output) as folder:
        if base["source"] == "package":
            _from_package(base["package"], base["file"], folder)
        elif base["source"] == "folder":
            _from_folder(FolderBase.model_validate(dict(base)), folder)
        else:
            _from_hub(base["repository"], base["revision"], folder)
        manifest.write(folder / "manifest.json")


def adopt_base(checkpoint: Path, output: Path, manifest: Manifest) -> None:
    """Make a checkpoint the parent of a model without SFT; files are linked where possible."""
    with atomic_directory(output) as folder:
        # Hidden files stay behind: Snakemake's own timestamp must not become one of two folders.
        for file in checkpoint.glob("[!.]*"):
            if file.name != "manifest.json" and file.is_file():
                _link(file, folder / file.name)
        manifest.write(folder / "manifest.json")


def kept_base(base: ScratchBase, kept: Path) -> Path:
    """The folder among those `kept` for a base from scratch, which may not be there.

    Its name is a sum of the base's settings, seed included, and of the code that pretrains.
    """
    code = code_digest("sage.training.pretrain")
    return kept / digest({"base": base.model_dump(mode="json"), "code": code})[:16]


def take_base(kept: Path, output: Path, manifest: Manifest) -> None:
    """Copy a kept base into `output`; its manifest says which commit pretrained it."""
    made = json.loads((kept / "manifest.json").read_text(encoding="utf-8"))
    with atomic_directory(output) as folder:
        copy_checkpoint(kept, folder)
        manifest.write(folder / "manifest.json", pretrained_at=made["git_commit"])


def copy_checkpoint(source: Path, folder: Path) -> None:
    """Copy the files of a checkpoint, without its manifest. Copies, not links: training elsewhere
    may write into the files of the source."""
    for file in {file for pattern in KEPT for file in source.glob(pattern)}:
        if file.name != "manifest.json":
            shutil.copyfile(file, folder / file.name)


def _from_hub(repository: str, revision: str, folder: Path) -> None:
    mirror = mirror_folder()
    copy = mirror / repository if mirror else None
    if copy and copy.is_dir():
        for pattern in KEPT:
            for file in copy.glob(pattern):
                _link(file.resolve(), folder / file.name)
    else:
        try:
            if reason := silence():
                raise ConnectionError(reason)
            snapshot_download(repository, revision=revision, local_dir=folder, allow_patterns=KEPT)
        except Exception as error:
            raise NoBase(
                f"{repository}, revision {revision}: not in the mirror ({copy or 'none is set'}), "
                f"and the hub did not give it ({type(error).__name__}: {error}). Connect to the "
                "hub, or put a copy into the folder OWNER/NAME of a mirror: see config/config.yaml"
            ) from error
        shutil.rmtree(folder / ".cache", ignore_errors=True)
    if not any(folder.glob("*.safetensors")):
        raise NoBase(
            f"{repository}, revision {revision}: no safetensors; other formats can hold code and "
            "are not loaded"
        )


def _from_folder(base: FolderBase, folder: Path) -> None:
    if faults := [message for _, message in base.faults()]:
        raise NoBase("; ".join(faults))
    if base.adapter:
        import torch

        from sage.policies import load_policy, load_tokenizer, save_checkpoint

        try:
            merged = load_policy(Path(base.folder), Path(base.adapter), torch.float32, "cpu")
        except Damaged as error:
            raise NoBase(
                f"{str(error).partition(';')[0]}; copy the model or adapter again"
            ) from error
        save_checkpoint(merged, load_tokenizer(base.folder), folder)
        return
    copy_checkpoint(Path(base.folder), folder)
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "np"):
                pass
        except Exception as error:  # of the library, which has a class of its own for it
            raise NoBase(
                f"{Path(base.folder) / file.name} is damaged ({error}); copy the model again to "
                "there, then run the same command again"
            ) from error


def _from_package(package: str, file: str, folder: Path) -> None:
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    copies = [path for place in places for path in Path(place).rglob(file)]
    if not copies:
        raise NoBase(
            f"package {package!r} {'holds no file ' + repr(file) if spec else 'is not installed'}; "
            "install it: python3 workflow/install.py .venv --extra smollm"
        )
    import torch  # here, for the other bases need neither of these
    from transformers import AutoModelForCausalLM

    from sage.policies import load_tokenizer, save_checkpoint

    read = AutoModelForCausalLM.from_pretrained(
        str(copies[0].parent), gguf_file=file, dtype=torch.float32, trust_remote_code=False
    )
    # The weights are plain numbers by now, but the model still counts as quantised.
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    save_checkpoint(model, load_tokenizer(copies[0].parent, gguf_file=file), folder)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
