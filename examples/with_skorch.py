"""skorch: a robust criterion whose radius scikit-learn searches, and unbiased draws.

pip install 'drolearn[torch]' skorch
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from rare_digits import RHO, errors, network, rows
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import Tensor

from drolearn.nn import MultilevelBatches, RobustLoss


class RobustCrossEntropy(RobustLoss):
    """The robust cross-entropy of a batch, or of all rows if there is a draw."""

    def forward(self, scores: Tensor, y: Tensor, draw: Any = None) -> Tensor:  # type: ignore[override]
        """Return the robust loss of a batch of scores and labels."""
        return super().forward(F.cross_entropy(scores, y, reduction="none"), draw)


class MultilevelClassifier(NeuralNetClassifier):
    """A classifier that trains with draws, which its loader yields with the batches."""

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """Return a loader of draws for training and of ordinary batches otherwise."""
        if not training:
            return super().get_iterator(dataset, training=False)
        rho = self.get_params_for("criterion")["rho"]
        return MultilevelBatches(len(dataset), batch_size=32, rho=rho, random_state=0).loader(
            dataset
        )

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Make the forward and backward pass of skorch, with the draw."""
        self._set_training(True)
        (x, y), draw = batch
        scores = self.infer(x, **fit_params)
        loss = self.criterion_(scores, y.to(self.device), draw)
        loss.backward()
        return {"loss": loss, "y_pred": scores}


def main(epochs: int = 30) -> None:
    """Search the radius of a robust network, then train with draws."""
    train, test, rare = rows()
    (x, y), (x_test, y_test) = train.tensors, test.tensors
    options: dict[str, Any] = {
        "criterion": RobustCrossEntropy,
        "criterion__rho": RHO,
        "predict_nonlinearity": torch.nn.Softmax(dim=-1),
        "optimizer": torch.optim.SGD,
        "optimizer__momentum": 0.9,
        "lr": 0.05,
        "max_epochs": epochs,
        "batch_size": 32,
        "train_split": None,
        "verbose": 0,
    }
    net = NeuralNetClassifier(network(), **options)
    search = GridSearchCV(net, {"criterion__rho": [0.0, 0.1, 1.0]}, cv=3)
    search.fit(x.numpy(), y.numpy())
    scores = torch.from_numpy(search.predict_proba(x_test.numpy()))
    print(f"batches, best radius {search.best_params_['criterion__rho']:<8g}", end="")
    print(errors(scores, y_test, rare))
    draws = MultilevelClassifier(network(), **options).fit(x.numpy(), y.numpy())
    scores = torch.from_numpy(draws.predict_proba(x_test.numpy()))
    print(f"{'draws':29s}{errors(scores, y_test, rare)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
