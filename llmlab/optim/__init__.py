"""From gradients to new parameters: clipping and AdamW in one pass, loss scaling, learning-rate schedules."""

from llmlab.optim.adamw import AdamW
from llmlab.optim.loss_scaling import LossScale
from llmlab.optim.schedules import warmup_cosine

__all__ = ["AdamW", "LossScale", "warmup_cosine"]
