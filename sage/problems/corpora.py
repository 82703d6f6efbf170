"""The corpora that a base made from scratch can be trained on: one type of settings for each.

A corpus' settings stand beside its generator; one more is one more name here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter

from sage.problems.corpus import Corpus
from sage.problems.route_sets import RoutesCorpus
from sage.problems.sum_sets import SumsCorpus


def _named(given: Any) -> Any:
    """A corpus that does not say what it is, is one of styles."""
    return {"source": "styles", **given} if isinstance(given, Mapping) else given


AnyCorpus = Annotated[
    Corpus | RoutesCorpus | SumsCorpus, Field(discriminator="source"), BeforeValidator(_named)
]
_CORPORA: TypeAdapter[Any] = TypeAdapter(AnyCorpus)


def read_corpus(settings: Mapping[str, Any]) -> Corpus | RoutesCorpus | SumsCorpus:
    """The corpus of these settings."""
    corpus: Corpus | RoutesCorpus | SumsCorpus = _CORPORA.validate_python(dict(settings))
    return corpus
