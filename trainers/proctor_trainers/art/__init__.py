"""Training with ART on trajectories from the service's POST /rollout, graded and with logprobs.

`python -m proctor_trainers.art` is a training script. Its parts, for a script of your own:

    training.TrainingLoop       gather, train, log, step by step
    rollouts.Rollouts           the rollouts of a step, as awaitable trajectory groups
    trajectories.trajectory_of  the service's trajectory as an art.Trajectory
    memory.MemoryBackend        an art.Backend without training, for tests

A failure of the service never becomes a reward: the failed rollout raises. This module does not
import ART.
"""
