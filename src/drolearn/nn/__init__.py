"""Robust training of PyTorch models, in your own training loop.

    RobustLoss         from the losses of a batch to the robust loss
    MultilevelBatches  batches whose gradient is unbiased for the robust loss of all rows
    robust_backward    the gradient of a draw that does not fit into memory

The weights are those of :func:`drolearn.worst_case` and the batches those of
:class:`drolearn.Multilevel`.
"""

try:
    import torch as _  # noqa: F401
except ModuleNotFoundError as error:  # pragma: no cover - tested in another process
    raise ModuleNotFoundError(
        "drolearn.nn needs PyTorch: pip install 'drolearn[torch]'.", name="torch"
    ) from error

from drolearn.nn.backward import robust_backward
from drolearn.nn.batches import MultilevelBatches
from drolearn.nn.criterion import RobustLoss

__all__ = ["MultilevelBatches", "RobustLoss", "robust_backward"]
