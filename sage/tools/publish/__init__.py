"""What a finished study shares with others, and where its form comes from.

- `texts`: a card for each adapter and one for the samples, as the Hugging Face hub shows them, and
  a page for each claim, in the form of the open-reproduction logbooks of trackio.
- `evaluations`: pass@k with intervals and graded samples in the schemas of every_eval_ever.
- `sending`: writes them into one folder, and sends them to the hub only where that is asked for.

Nothing here computes a result; all numbers come from the metrics and manifests of the study
(`material`).
"""
