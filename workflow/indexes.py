"""Where torch comes from: PyTorch's index of CPU builds, or the user's, if it answers."""

import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE_SECONDS = 5.0


def index_answers(url: str, seconds: float) -> bool:
    """Whether a package index serves torch, decided within `seconds` in any state of the network.

    A thread asks, because urllib's time limit covers neither name look-up nor a very slow answer.
    A certificate that only Python does not trust counts as an answer: pip has its own authorities.
    """
    if not url.startswith(("http://", "https://")):
        return True
    answered = threading.Event()

    def ask() -> None:
        try:
            with urllib.request.urlopen(f"{url.rstrip('/')}/torch/", timeout=seconds):
                answered.set()
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                answered.set()
        except Exception:  # a broken answer, with any error of urllib, is no answer
            pass

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return answered.is_set()


def torch_index(build: str, environ: Mapping[str, str]) -> str | None:
    """The index for torch besides pip's own, or None if there is none that answers."""
    url = environ.get("TORCH_INDEX_URL", CPU_INDEX if build == "cpu" else "")
    if not url or index_answers(url, PROBE_SECONDS):
        return url or None
    print(
        f"install: {url} gave no list of torch builds within {PROBE_SECONDS:g} s; using only pip's "
        "own settings",
        flush=True,
    )
    return None
