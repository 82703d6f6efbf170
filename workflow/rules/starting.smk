# What happens before the first job and after the last, and the targets of the command line.


# What people see after other jobs have failed.
ON_ERROR = (
    "The log of a failed job ends with what was wrong. A log that ends in the middle is of a job "
    "that was killed from outside, most often for lack of memory: run fewer jobs at once "
    "(--cores); on a cluster raise memory_gb in the job section of its model. Then run the same "
    "command again: it continues where it stopped."
)


def hold_results():
    """Stops the run before any job if nothing can be written, or another run writes there.

    Targets that only tell something, such as `plan`, may run beside it.
    """
    try:
        require_writable(RESULTS.folder)
        if any(job.output for job in workflow.dag.needrun_jobs()):
            hold(RESULTS.folder)
    except (Fault, Locked) as error:
        refuse(error)


def register_study():
    """Writes down what the study asks, before any job. No rule's input: it may change later, and
    what has been trained stays trained."""
    from sage.claims.registration import committed, register
    from sage.claims.tests import read_claims
    from sage.study.written import read_study

    try:
        written = read_study(SETTINGS.study, CONFIG_FOLDER, SETTINGS.set)
        claims = read_claims(STUDY.study.claims, written)
        earlier = committed(STUDY.name, PROJECT / "reports")
        register(STUDY, claims, RESULTS.registered, earlier)
    except (Damaged, ValueError) as error:
        refuse(error)


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


def file_of_kept_run(wildcards):
    """The kept run's pass@k by training run; a missing one, of either side, ends the run."""
    from sage.tools.kept_run import kept_file, own_metrics

    folder = SETTINGS.kept
    try:
        kept = kept_file(Path(folder) if folder else None)
        own_metrics(RESULTS.metrics("pass_at_k"), STUDY.option)
        return str(kept)
    except (FileNotFoundError, ValueError) as error:
        refuse(error)


def let_scheduler_sleep():
    """Lift Snakemake's default limit of 100 jobs a second; another limit stays.

    With it Snakemake 9 wakes its scheduler once a second for every job that has ended: after
    hundreds of jobs that takes a core.
    """
    scheduler, settings = workflow.scheduler, workflow.scheduling_settings
    limit = settings.max_jobs_per_timespan
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        scheduler.job_rate_limiter = None
