"""Drawing completions: the `Sampler` interface, its engines and the shards they are kept in.

Every sample has a random stream of its own, derived by hashing its name, so adding
problems, samples or seeds, or changing the batch size, leaves every other sample as it was
but for floating-point ties (see `sage.sampling.transformers_engine`). `interface.complete` draws
completions of prompts with any sampler.
"""
