# What the rule of RL reads, and what the study asks.


def register_study():
    """Writes down what the study asks, before any job. No rule's input: it may change later, and
    what has been trained stays trained."""
    from sage.claims.registration import register
    from sage.claims.tests import load_claims

    committed = CONFIG_FOLDER / "registered" / f"{STUDY.name}.json"
    try:
        claims = load_claims(Path(STUDY.study.claims))
        register(STUDY, claims, RESULTS.registered, committed)
    except (Damaged, ValueError) as error:
        refuse(error)


def rl_settings(wildcards):
    """All but `watch`, which changes no result: it reaches jobs in the environment."""
    return STUDY.rl(wildcards.model, wildcards.algorithm).model_dump(exclude={"watch"})


def algorithm_settings(wildcards):
    """The method's settings without its title, which changes no result."""
    return {**STUDY.algorithms[wildcards.algorithm].model_dump(), "title": ""}


def training_problems(wildcards):
    return STUDY.training_problems(RESULTS, wildcards.model)


def kl_reference(wildcards):
    """The checkpoint before SFT for methods that use it as reference; empty for all others."""
    if STUDY.algorithms[wildcards.algorithm].fidelity == "paper":
        return []
    return RESULTS.pretrained(wildcards.model)


def snapshots(wildcards):
    return STUDY.snapshots(wildcards.model, wildcards.algorithm)


def rl_scratch(wildcards):
    """The folder of a run's checkpoints. It is not declared: Snakemake deletes failed outputs."""
    return RESULTS.rl_scratch(run_of(wildcards))


def code_of_algorithms(rows):
    """The files of the classes that some methods name, including the user's own."""
    files = {file for row in rows for file in choice_files(STUDY.algorithms[row])}
    return beside_snakefile(files)


def algorithm_code(wildcards):
    return code_of_algorithms([wildcards.algorithm])
