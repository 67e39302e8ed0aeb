"""Lightning: a robust LightningModule, resumed to the bit from a checkpoint amid an epoch.

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
    """A network, a robust criterion, and batches that come with their draws."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.criterion = network(), RobustLoss(RHO)
        self.train_rows, _, _ = rows()
        self.batches = MultilevelBatches(
            len(self.train_rows), batch_size=32, rho=RHO, random_state=0
        )

    def train_dataloader(self) -> Any:
        """(batch, draw) by (batch, draw)."""
        return self.batches.loader(self.train_rows)

    def training_step(self, batch: Any, step: int) -> Tensor:
        """The unbiased estimate of a draw; Lightning takes its gradient."""
        examples, draw = batch
        return self.criterion(losses(self.model, examples), draw)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain steps with momentum."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The batches to come belong to a checkpoint."""
        checkpoint["batches"] = self.batches.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on with them."""
        self.batches.load_state_dict(checkpoint["batches"])


def fit(folder: str, epochs: int, checkpoint: Path | None = None) -> RobustModule:
    """Train, from a checkpoint if there is one, and keep those of every tenth step."""
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
    """Train at once, and again from a checkpoint: both are the same to the bit."""
    _, test, rare = rows()
    x, y = test.tensors
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        whole = fit(first, epochs)
        resumed = fit(second, epochs, Path(first) / "step=10.ckpt")  # amid the first epoch
    for name, module in (("at once", whole), ("stopped and resumed", resumed)):
        with torch.no_grad():
            print(f"{name:29s}{errors(module.model(x), y, rare)}")
    pairs = zip(whole.parameters(), resumed.parameters(), strict=True)
    same = all(torch.equal(one, other) for one, other in pairs)
    print("the same to the bit" if same else "NOT the same")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
