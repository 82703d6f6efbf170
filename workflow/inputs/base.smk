# What the rules of base models read.


def models_of(*sources):
    """Models whose base comes from one of `sources`."""
    models = STUDY.study.models.items()
    return [name for name, model in models if model.base.source in sources]


def models_with_sft():
    return [name for name, model in STUDY.study.models.items() if model.sft]


def base_settings(wildcards):
    return STUDY.model(wildcards.model).base.model_dump()


def sums_of_base(name):
    """Sums of the files of a model's own folder; none for other bases."""
    base = STUDY.model(name).base
    return base.sums() if base.source == "folder" else []


def data_of_base(wildcards):
    """A parameter of the job: an edited model is copied again."""
    return sums_of_base(wildcards.model)


def untuned_parent(wildcards):
    """The start of a model without SFT: its own base, or another model's parent."""
    base = STUDY.model(wildcards.model).base
    if base.source == "model":
        return RESULTS.rl_start(base.model)
    return RESULTS.pretrained(wildcards.model)
