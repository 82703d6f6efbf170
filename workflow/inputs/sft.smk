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


def sums_of_sft(name):
    """Sums of the data files behind a model's examples; none where a corpus draws them."""
    data = STUDY.model(name).sft.data
    return data_sums(STUDY.benchmarks[data]) if data else []


def data_of_sft(wildcards):
    """A parameter of the job: an edited file is read again."""
    return sums_of_sft(wildcards.model)


def sft_scratch(wildcards):
    return RESULTS.sft_scratch(wildcards.model)
