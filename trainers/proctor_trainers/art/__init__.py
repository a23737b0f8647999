"""ART trains on trajectories that the service plays: POST /rollout, graded, with logprobs.

`python -m proctor_trainers.art` is a training script. The pieces that it is made of, for a script of
your own:

    training.TrainingLoop       gather, train, log, step by step
    rollouts.Rollouts           the rollouts of a step, as awaitable trajectory groups
    trajectories.trajectory_of  the service's trajectory as an art.Trajectory
    memory.MemoryBackend        an art.Backend that trains nothing, for tests

A failure of the service never becomes a reward: such a rollout raises. Importing this imports no ART.
"""
