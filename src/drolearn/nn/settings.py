"""The settings of a criterion, and how state dicts hold them.

They are one tensor, the bytes of a JSON object: `torch.load(weights_only=True)` reads it, and
formats for tensors only, such as safetensors, can store it.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from drolearn._inner.worst_case import check_soft
from drolearn.divergence import NAMES, CressieRead, Divergence, as_divergence, radius_for
from drolearn.nn.checks import check_values
from drolearn.spectral import Exponential, Extremile, Spectral

__all__ = ["Settings"]

#: The divergences that a name and numbers describe.
_CLASSES: dict[str, Any] = {name: type(as_divergence(name)) for name in NAMES}
_CLASSES |= {each.name: each for each in (CressieRead, Exponential, Extremile, Spectral)}
#: The keys of a description that are not parameters of the divergence.
_NOT_NUMBERS = ("name", "custom")


class Settings(torch.nn.Module):
    """A module with radius, divergence and `nan`, which its state holds."""

    #: Version of the state: from 2 on, it holds the settings.
    _version = 2

    rho: float
    """The radius; NaN for a soft ball."""
    divergence: Divergence
    nan: str
    tau: float | None

    def _configure(
        self,
        rho: float | None,
        divergence: str | Divergence,
        nan: str,
        tau: float | None = None,
    ) -> None:
        """Set the settings that a state holds; wrong ones change nothing."""
        chosen = as_divergence(divergence)
        price = None if tau is None else check_soft(tau, rho, chosen)
        radius = radius_for(chosen, rho) if price is None else math.nan
        if nan not in ("raise", "skip"):
            raise ValueError(f"The 'nan' parameter must be 'raise' or 'skip'. Got {nan!r} instead.")
        self.rho, self.divergence, self.nan, self.tau = radius, chosen, nan, price
        #: Whether a name and a radius say all: custom divergences may have any name.
        named = chosen.name in NAMES and as_divergence(chosen.name) == chosen
        self._named = named and price is None

    def get_extra_state(self) -> Tensor:
        """Return the settings, which `state_dict` holds as "_extra_state".

        Returns
        -------
        Tensor of uint8
            Radius or price, divergence and `nan` as the bytes of a JSON object; of a custom
            divergence, the name only.

        Examples
        --------
        >>> from drolearn.nn import RobustLoss
        >>> bytes(RobustLoss(rho=0.5).get_extra_state().tolist()).decode()
        '{"rho": 0.5, "divergence": {"name": "chi2"}, "nan": "raise"}'
        """
        return _pack(self.rho, self.divergence, self.nan, self.tau)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore settings, as `load_state_dict` does.

        Parameters
        ----------
        state : Tensor of uint8
            A result of `get_extra_state`.

        Raises
        ------
        ValueError
            If the settings cannot be read, or belong to a custom divergence and the criterion was
            not made with one of the same name.

        Examples
        --------
        >>> from drolearn.nn import RobustLoss
        >>> criterion = RobustLoss()
        >>> criterion.set_extra_state(RobustLoss(rho=0.5, divergence="kl").get_extra_state())
        >>> criterion
        RobustLoss(rho=0.5, divergence=KL())
        """
        self._configure(**_unpack(state, self.divergence))

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load a state; those of version 1 hold no settings."""
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
        key = f"{prefix}_extra_state"
        if (local_metadata.get("version") or 1) < 2 and key in missing_keys:
            missing_keys.remove(key)


def _pack(rho: float, divergence: Divergence, nan: str, tau: float | None) -> Tensor:
    """Return settings as a tensor of bytes; of a custom divergence, the name only."""
    radius = float(rho) if tau is None and divergence.has_radius else None
    settings: dict[str, Any] = {"rho": radius, "divergence": _describe(divergence), "nan": nan}
    if tau is not None:  # earlier versions read states without it
        settings["tau"] = tau
    return torch.tensor(list(json.dumps(settings).encode()), dtype=torch.uint8, device="cpu")


def _unpack(state: Any, present: Divergence) -> dict[str, Any]:
    """Return settings from their tensor; a custom divergence must be the present one."""
    if isinstance(state, Tensor):
        check_values("state", state)
    try:
        settings = json.loads(bytes(state.to("cpu", torch.uint8).tolist()))
        rho, nan, described = (settings[key] for key in ("rho", "nan", "divergence"))
        found = {"rho": rho, "nan": nan, "tau": settings.get("tau")}
        custom, name = described.get("custom"), described.get("name")
        described_numbers = {key: described[key] for key in described if key not in _NOT_NUMBERS}
        numbers = {
            key: value if key == "spectrum" else float(value)
            for key, value in described_numbers.items()
        }
        divergence = _CLASSES[name](**numbers) if name in _CLASSES else None
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"The 'state' parameter must hold the settings that RobustLoss.state_dict() has "
            f"saved. Got {type(state).__name__} instead, which cannot be read as such."
        ) from error
    if custom is not None:
        if _describe(present) != described:
            raise ValueError(
                f"The state was saved with the custom divergence {custom!r}, whose functions "
                f"cannot be stored: make the criterion with this divergence, then load the state. "
                f"Got a criterion with {present!r} instead."
            )
        return {**found, "divergence": present}
    return {**found, "divergence": divergence or as_divergence(name)}


def _describe(divergence: Divergence) -> dict[str, Any]:
    """Return name and numbers of a divergence, or the name of a custom one."""
    if type(divergence) is not _CLASSES.get(divergence.name) or not is_dataclass(divergence):
        return {"custom": divergence.name}
    values = {each.name: getattr(divergence, each.name) for each in fields(divergence)}
    numbers = {
        name: list(value) if name == "spectrum" else float(value) for name, value in values.items()
    }
    return {"name": divergence.name, **numbers}
