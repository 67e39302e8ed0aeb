"""Lightning: a robust LightningModule that resumes from a checkpoint within an epoch.

pip install 'drolearn[torch]' lightning
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from rare_digits import RHO, errors, losses, network, rows
from torch import Tensor

from drolearn.nn import MultilevelBatches, RobustLoss


class RobustModule(L.LightningModule):
    """A network with a robust criterion and batches with draws."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.criterion = network(), RobustLoss(RHO)
        self.train_rows, _, _ = rows()
        self.batches = MultilevelBatches(
            len(self.train_rows), batch_size=32, rho=RHO, random_state=0
        )

    def train_dataloader(self) -> Any:
        """Return a loader of (batch, draw)."""
        return self.batches.loader(self.train_rows)

    def training_step(self, batch: Any, step: int) -> Tensor:
        """Return the unbiased estimate of the robust loss."""
        examples, draw = batch
        return self.criterion(losses(self.model, examples), draw)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the state of the batches."""
        checkpoint["batches"] = self.batches.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state of the batches."""
        self.batches.load_state_dict(checkpoint["batches"])


def fit(folder: str, epochs: int, checkpoint: Path | None = None) -> RobustModule:
    """Train, optionally from a checkpoint, and save a checkpoint every tenth step."""
    every_tenth = ModelCheckpoint(folder, "{step}", every_n_train_steps=10, save_top_k=-1)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=[every_tenth],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = RobustModule()
    trainer.fit(module, ckpt_path=checkpoint, weights_only=True)
    return module


def main(epochs: int = 30) -> None:
    """Train without a break and from a checkpoint, and compare the parameters bit by bit."""
    _, test, rare = rows()
    x, y = test.tensors
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        uninterrupted = fit(first, epochs)
        resumed = fit(second, epochs, Path(first) / "step=10.ckpt")  # in the first epoch
    for name, module in (("at once", uninterrupted), ("stopped and resumed", resumed)):
        with torch.no_grad():
            print(f"{name:29s}{errors(module.model(x), y, rare)}")
    pairs = zip(uninterrupted.parameters(), resumed.parameters(), strict=True)
    same = all(torch.equal(one, other) for one, other in pairs)
    print("the same to the bit" if same else "NOT the same")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
