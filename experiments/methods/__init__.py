"""Prototypical networks and the baselines of the paper, each a `Method` with its options.

Methods share data, training loop, evaluation and checkpoints. Settings that the papers do not specify were chosen in
short, unrecorded trials on the validation classes. To add a method, write a module with METHOD and list it here.
"""

from experiments.methods import clustering, encoders, matching, metalstm, nearest, prototypical, statistician, zero_shot
from experiments.methods.compatibility import ALE, SJE
from experiments.methods.joint_embedding import DA_SJE, DS_SJE
from experiments.methods.options import Config, Method
from protojax import Learner, Splits
from protojax.learners import started_from

FEW_SHOT: dict[str, Method] = {
    'prototypical': prototypical.METHOD,
    'matching': matching.METHOD,
    'nearest': nearest.METHOD,
    'metalstm': metalstm.METHOD,
    'statistician': statistician.METHOD,
}
ZERO_SHOT: dict[str, Method] = {
    'prototypical': zero_shot.METHOD,
    'ale': ALE,
    'sje': SJE,
    'ds-sje': DS_SJE,
    'da-sje': DA_SJE,
    'clustering': clustering.METHOD,
}


def build(method: Method, config: Config, data: Splits) -> Learner:
    """Build the learner of a method with the encoder of --encoder, --init or --weights."""
    if not method.encoders:
        return method.build(config, data, None)
    if config.method.init:
        start = encoders.to_start_from(config.method.init, data)
        learner = method.build(config, data, config.encoder.on_this_machine(start.encoder))
        return started_from(learner, start.params, start.batch_stats)
    if config.run.weights:
        weights = encoders.to_evaluate(config.run.weights, config.flat, data)
        return method.build(config, data, config.encoder.on_this_machine(weights.encoder))
    return method.build(config, data, config.encoder.build(data))
