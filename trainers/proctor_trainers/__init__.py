"""Proctor's rewards in the trainers that people use.

`proctor_trainers.trl` and `proctor_trainers.unsloth` have reward functions, and scripts that train.
They stand on `rewards`, which any other trainer can stand on too. This process holds the thin client
and nothing else of Proctor's; a trainer is imported only where it is used.
"""
