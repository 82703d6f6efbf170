"""Making policies: pretraining a tiny base, SFT to the answer format, RL with TRL.

`trainer.SageTrainer` takes the place of TRL's GRPOTrainer in a script of your own;
`shaping.Shaping` says what it adds. `rewards.graded_reward` makes the project's grader a reward
function of TRL. `drawers.transformers_rollouts` and `drawers.vllm_rollouts` draw rollouts with the
project's samplers instead of TRL's generation.
"""
