# What the rules of supervised fine-tuning read.


def sft_settings(wildcards):
    return STUDY.model(wildcards.model).sft.model_dump()


def example_settings(wildcards):
    """The settings that decide which examples SFT gets, besides their source."""
    sft = STUDY.model(wildcards.model).sft
    return {"data": sft.data, "examples": sft.examples, "seed": sft.seed}


def sft_source(wildcards):
    """The source of SFT's examples: the entry of a data set, or a corpus."""
    model = STUDY.model(wildcards.model)
    if model.sft.data:
        return STUDY.benchmarks[model.sft.data].model_dump()
    return (model.sft.corpus or model.base.corpus).model_dump()


def sft_scratch(wildcards):
    return RESULTS.sft_scratch(wildcards.model)
