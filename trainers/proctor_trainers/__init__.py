"""Proctor's rewards in common RL trainers.

`proctor_trainers.trl` and `proctor_trainers.unsloth` contain reward functions and training scripts.
Both use `rewards`, which other trainers can use too. Of Proctor, this process imports only the thin
client; a trainer is imported only by its own code.
"""
