"""What a finished study shares with others, and where its form comes from.

- `cards`: a card for each adapter and one for the samples, as the Hugging Face hub shows them.
- `logbook`: a page for each claim, in the form of the open-reproduction logbooks of trackio.
- `evaluations`: pass@k with intervals in the schema of every_eval_ever; `instances`: the samples.
- `upload`: sends them to the hub, only where that is asked for.

Nothing here computes a result; all numbers come from the metrics and manifests of the study.
"""
