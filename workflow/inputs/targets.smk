# The targets of the command line: refused if there are none such, and where their results are.


def asked_targets():
    """The targets that were asked for by name, with a check that each can be made."""
    from contextlib import redirect_stderr
    from io import StringIO

    from snakemake.cli import parse_args

    called = Path(sys.argv[0]).name in ("snakemake", "__main__.py")
    if not called or not workflow.is_main_process:
        return []
    with redirect_stderr(StringIO()):  # which profile is used has been said
        return parse_args(sys.argv[1:])[1].targets


def refuse_unknown_targets():
    """End with the nearest names where a target is none of this study."""
    from sage.tools.targets import no_target

    known = [rule.name for rule in workflow.rules if not rule.has_wildcards()]
    for target in asked_targets():
        made = any(rule.is_producer(target) for rule in workflow.rules)
        if not (made or workflow.is_rule(target) or Path(target).exists()):
            refuse(no_target(target, known, STUDY, CONFIG_FOLDER))


def say_results():
    """Say where the files are that were asked for; of a whole study, its page and verdicts."""
    from sage.tools.targets import ending

    for asked in workflow.dag.targetrules:
        files = [*asked.output] or ([*asked.input] if asked.norun else [])
        for line in ending(asked.name, [*map(str, files)], RESULTS):
            print(line, flush=True)
