"""The command `drolearn info`."""

from __future__ import annotations

from typing import Any

from drolearn.cli.options import Json, Model, Trust

__all__ = ["info"]


def info(model: Model, trust: Trust = False, as_json: Json = False) -> None:
    """Show what a model file holds: class, settings, columns, classes and the fit.

    \b
    Examples:
      drolearn info model.skops
      drolearn info model.drl --json
    """
    from drolearn._files.archive import read_bytes
    from drolearn._files.estimator import read_manifest
    from drolearn.cli.models import load_model
    from drolearn.cli.report import pairs, show

    fitted = load_model(model, trust)
    last = fitted[-1] if hasattr(fitted, "steps") else fitted
    content: dict[str, Any] = {"model": str(model), "bytes": model.stat().st_size}
    if model.suffix == ".drl":
        manifest, _ = read_manifest(read_bytes(model), model)
        content |= {"format": manifest["format"], "versions": manifest["versions"]}
    content["steps"] = [type(step).__name__ for _, step in getattr(fitted, "steps", [("", fitted)])]
    content["settings"] = {
        name: repr(value)
        for name, value in last.get_params(deep=False).items()
        if value is not None
    }
    names = getattr(fitted, "feature_names_in_", None)
    content["columns"] = getattr(fitted, "n_features_in_", None) if names is None else names
    for name in ("classes_", "divergence_", "rho_", "l2_", "robust_loss_", "status_"):
        if hasattr(last, name):
            value = getattr(last, name)
            content[name.rstrip("_")] = repr(value) if name == "divergence_" else value

    def text(console: Any) -> None:
        rows = [
            (name, [f"{key}={item}" for key, item in value.items()])
            if isinstance(value, dict)
            else (name, value)
            for name, value in content.items()
        ]
        console.print(pairs(rows))

    show(content, as_json, text)
