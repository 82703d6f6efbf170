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


def this_machine():
    """What `check` compares a study with."""
    from sage.tools.check import Machine

    return Machine(RESULTS, SETTINGS.device, gpu_limit(None), executor(None))


def refuse_what_is_missing():
    """Stops the run before any job if a job would find no GPU, or what it fetches cannot be had.

    Memory is only said: `memory_gb` is what a job asks a cluster for, and it may need less.
    """
    from sage.tools.check import lacking, unavailable

    jobs = [(job.rule.name, job.wildcards) for job in workflow.dag.needrun_jobs()]
    bases = [wildcards.model for name, wildcards in jobs if name == "fetch"]
    sets = [wildcards.benchmark for name, wildcards in jobs if name == "problems"]
    missing = unavailable(STUDY, this_machine(), bases, sets) if bases or sets else []
    if any("model" in each.keys() for _, each in jobs):
        for line in lacking(STUDY, this_machine()):
            if line[:4] != "GPUs":
                print(line, file=sys.stderr, flush=True)
            elif SETTINGS.device == "cuda":
                missing.append(line)
    if missing:
        refuse("\n".join(missing))


def warn_of_untested():
    """Says which packages are newer than any that was tested."""
    from sage.tools.check.machine import UNTESTED, untested

    if newer := untested():
        print(f"{UNTESTED}{', '.join(newer)}".capitalize(), file=sys.stderr, flush=True)


# The command that goes on with the study.
AGAIN = f"sage-rlvr run --config study={STUDY.option}" + (
    "" if SETTINGS.results == "results" else f" results={SETTINGS.results}"
)


def studies_below():
    """Results of the study as it is written, where values were set over it, and of the studies that
    it extends, the nearest first."""
    own = [Path(SETTINGS.study)] * bool(STUDY.overrides)
    files = [*own, *lineage(SETTINGS.study, CONFIG_FOLDER)]
    return [Path(SETTINGS.results) / name_of_study(file) for file in files]


def own_jobs(jobs):
    """Those that make results of this study; a workflow that uses these rules has more."""
    folder = RESULTS.folder
    return [
        job for job in jobs if any(Path(f).is_relative_to(folder) for f in job.output)
    ]


def take_over_work(dag):
    """Takes what is the same from the studies below, and says so; a dry run only looks. The jobs of
    which it is so, each with the folder that made it."""
    others = [folder for folder in studies_below() if jobs_folder(folder).is_dir()]
    if not (others and workflow.executor_plugin):
        return {}
    jobs = own_jobs(job for level in dag.toposorted() for job in level)
    taken = take_over(jobs, RESULTS.folder, others, only_look=workflow.dryrun)
    verb = "would be taken" if workflow.dryrun else "are taken"
    for folder, number in Counter(taken.values()).items():
        text = f"What {number} jobs make {verb} from {folder}: same settings, code and data"
        print(text, file=sys.stderr, flush=True)
    if taken and not workflow.dryrun:
        workflow.iocache.exists_local.clear()
    return taken


def compare_with_records():
    """Has Snakemake make again what is not what today's settings, code and files make, and nothing
    for its date.

    Snakemake goes by dates and by what it noted itself, which a copy, an edit with an old date or
    --touch outwit. Where it asks for incomplete files, it knows all jobs and has not yet chosen.
    """
    from snakemake.dag import DAG
    from snakemake_interface_storage_plugins.io import Mtime

    incomplete = DAG.check_incomplete

    async def check(dag):
        await incomplete(dag)
        if dag.workflow is not workflow or not workflow.is_main_process:
            return
        if "verify" in [each.name for each in dag.targetrules]:
            page = str(RESULTS.page)
            whole = DAG(workflow, dag.rules, {page}, set())
            await whole.update(await whole.file2jobs(page), file=page)
            LAST.append(compare(whole.jobs, RESULTS.folder))
            return
        taken = take_over_work(dag)
        jobs = own_jobs(dag.jobs)
        LAST.append(compare(jobs, RESULTS.folder))
        dag.forcefiles.update(file for job in LAST[-1].changed for file in job.output)
        # Not for --summary, which shows dates, nor where others' rules go by them.
        if workflow.executor_plugin and not AS_MODULE:
            latest = Mtime(local=float("inf"))
            dates = {f: latest for job in jobs for f in job.output}
            workflow.iocache.mtime.update(dates)
        for line in LAST[-1].lines("A run makes that again", AGAIN):
            print(line, file=sys.stderr, flush=True)
        if workflow.dryrun:
            from sage.tools.check import lacking
            from sage.tools.slurm import partitions

            for line in [] if partitions() else lacking(STUDY, this_machine()):
                print(line, file=sys.stderr, flush=True)
            LAST[-1].reasons.update(
                {job: [f"taken from {taken[job]}"] for job in taken}
            )

    DAG.check_incomplete = check


def todays_jobs(wildcards):
    """What differs from its record, for each job of the report, by the record's name."""
    folder = jobs_folder(RESULTS.folder)
    names = {job: record_file(job, RESULTS.folder) for job in LAST[-1].reasons}
    return {
        file.relative_to(folder).with_suffix("").as_posix(): LAST[-1].reasons[job]
        for job, file in names.items()
    }


def register_study():
    """Writes down what the study asks, before any job. No rule's input: it may change later, and
    what has been trained stays trained."""
    from sage.claims.known import kept_earlier, trained_earlier
    from sage.claims.registration import committed, read_entries, register
    from sage.claims.tests import read_claims
    from sage.study.written import read_study

    try:
        written = read_study(SETTINGS.study, CONFIG_FOLDER, SETTINGS.set)
        claims = read_claims(STUDY.study.claims, written)
        reports = PROJECT / "reports"
        earlier, kept = (
            committed(STUDY.name, reports, known) for known in (False, True)
        )
        others = {*RESULTS.folder.parent.glob("*"), *Path("results").glob("*")}
        there = RESULTS.folder.resolve()
        runs = trained_earlier(f for f in sorted(others) if f.resolve() != there)
        runs += kept_earlier(reports)
        entries = read_entries(kept) if kept else []
        register(STUDY, claims, RESULTS.registered, earlier, runs, entries)
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
    """End with the nearest names where a target is none of this study.

    A workflow that uses these rules has more of them than are known here.
    """
    if AS_MODULE:
        return
    from sage.fields import nearest
    from sage.tools.targets import example_of, no_target

    known = [rule.name for rule in workflow.rules if not rule.has_wildcards()]
    for target in asked_targets():
        if workflow.is_rule(target) and target not in known:
            refuse(
                f"{target!r} makes one file of several; name the file, such as "
                f"{example_of(workflow.get_rule(target).output[0])}{nearest(target, known)}"
            )
        made = any(rule.is_producer(target) for rule in workflow.rules)
        if not (made or workflow.is_rule(target) or Path(target).exists()):
            refuse(no_target(target, known, STUDY, CONFIG_FOLDER))


def say_results():
    """Say where the files are that were asked for; of a whole study, its page and verdicts."""
    from sage.tools.targets import ending

    for asked in workflow.dag.targetrules:
        files = [*asked.output] or ([*asked.input] if asked.norun else [])
        for name in NAMED.get(asked.name, ()):
            files += exhibit_files(name, RESULTS.partial)
        for line in ending(asked.name, [*map(str, files)], RESULTS):
            print(line, flush=True)
    for line in compare(workflow.dag.jobs, RESULTS.folder).lines(
        f"`{AGAIN}` makes that again", AGAIN
    ):
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
