"""The experiments of a TOML file, checked, as a list of runs.

All numbers are in the file, which marks each as the paper's or as a choice.  Unknown keys are
errors.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from drolearn.datasets.catalogue import CATALOGUE

__all__ = [
    "Artefact", "Default", "Draws", "Estimator", "Exact", "Library", "Protocol", "Run", "Search",
    "read_protocol",
]  # fmt: skip

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Scaling = Literal["none", "columns", "rows", "both"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(_Strict):
    """The model, and the range of its random starting point."""

    loss: Literal["logistic"]
    divergence: Literal["chi2"]
    intercept: bool
    start: PositiveFloat


class Budget(_Strict):
    """When stochastic methods end, and when they are evaluated."""

    passes: PositiveFloat
    samples: PositiveFloat
    first_look: PositiveFloat
    looks_per_decade: PositiveInt

    def goals(self, n: int) -> list[float]:
        """Numbers of samples at the evaluations; the last one is the end."""
        last = min(self.samples, self.passes * n)
        decades = max(math.log10(last / self.first_look), 0.0)
        count = math.ceil(decades * self.looks_per_decade) + 1
        return [float(goal) for goal in np.geomspace(min(self.first_look, last), last, count)]


class Split(_Strict):
    """The share of rows to train on: of all rows, or of the training rows of split `inside`.

    Without `train`, the artefact gives numbers of rows.
    """

    train: Annotated[float, Field(gt=0.0, le=0.99)] | None = None
    seeds: PositiveInt
    inside: str | None = None


class _Displayed(_Strict):
    label: str
    colour: str


class Draws(_Displayed):
    """A stochastic method of the paper with step sizes γ_t = step · half/(half + t)."""

    kind: Literal["multilevel", "growing", "full", "fixed"]
    inflation: Annotated[float, Field(ge=0.0)] = 0.0
    delta: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.01
    base: PositiveInt = 1
    r: Annotated[float, Field(gt=0.25, lt=0.5)] = 2.0**-1.5
    size: PositiveInt = 10
    rate: Annotated[float, Field(gt=1.0)] = 1.001
    step: PositiveFloat
    half: PositiveFloat | None = None


class Search(_Displayed):
    """Mean loss + λ‖θ‖², λ by cross-validation, fitted by stochastic gradients."""

    kind: Literal["search"]
    batch: PositiveInt
    folds: Annotated[int, Field(ge=2)]
    first: PositiveFloat
    factor: Share
    patience: PositiveInt
    count_from: PositiveFloat
    last: PositiveFloat
    passes: PositiveFloat
    samples: PositiveFloat
    step: PositiveFloat
    half: PositiveFloat | None = None


class Default(_Displayed):
    """The paper's objective by this library: RobustClassifier(rho, l2=0)."""

    kind: Literal["default"]


class Estimator(_Displayed):
    """RobustClassifier(rho) with its default settings, which include a penalty."""

    kind: Literal["estimator"]


class Library(_Displayed):
    """The paper's objective by a stochastic solver of this library with its default settings."""

    kind: Literal["library"]
    solver: Literal["gssg", "gssg-anchor", "pssg", "fsg", "sgd"]


class Exact(_Displayed):
    """The paper's objective, solved exactly."""

    kind: Literal["exact"]
    tol: PositiveFloat
    max_iter: PositiveInt


Method = Annotated[
    Draws | Search | Default | Estimator | Library | Exact, Field(discriminator="kind")
]
Interval = tuple[float, float]


class Published(_Strict):
    """Test errors in percent ± 95%, by ρ, and CPU seconds at ρ = 0.1."""

    gssg: dict[str, Interval]
    pssg: dict[str, Interval]
    erm: Interval
    seconds: dict[Literal["gssg", "pssg", "erm"], float]


class Data(_Strict):
    """A data set: its scaling, and its published results or the data set it stands in for."""

    scaling: Scaling
    published: Published | None = None
    stands_for: str | None = None


class Artefact(_Strict):
    """A figure or a table, and the runs it is made from."""

    kind: Literal["curves", "table", "scaling", "choices"]
    title: str
    datasets: Annotated[list[str], Field(min_length=1)]
    methods: Annotated[list[str], Field(min_length=1)]
    rho: Annotated[list[PositiveFloat], Field(min_length=1)]
    split: str
    x: Literal["samples", "seconds"] = "samples"
    samples: PositiveFloat | None = None
    looks_per_decade: PositiveInt | None = None
    sizes: list[PositiveInt] = []
    tests: PositiveInt | None = None
    targets: list[Share] = []
    scalings: list[Scaling] = []
    intercepts: list[bool] = []
    inflations: list[float] = []


class Quick(_Strict):
    """Numbers that replace those above with --quick."""

    seeds: PositiveInt
    samples: PositiveFloat
    search_samples: PositiveFloat
    folds: Annotated[int, Field(ge=2)]
    datasets: list[str]
    sizes: list[PositiveInt]
    tests: PositiveInt


@dataclass(frozen=True)
class Run:
    """One method on one split of one data set: everything that its result depends on."""

    dataset: str
    method: str
    rho: float
    split: str
    seed: int
    scaling: str
    intercept: bool
    train: float
    inside: float
    rows: int
    documents: int
    tests: int
    stop_at: float
    model: dict[str, Any]
    budget: dict[str, Any]
    settings: dict[str, Any]

    @cached_property
    def key(self) -> str:
        """A readable name and a digest of all fields."""
        content = json.dumps(asdict(self), sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        name = f"{self.dataset} N={self.rows}" if self.rows else self.dataset
        return f"{name} {self.method} rho={self.rho:g} {self.split} {self.seed} {digest}"

    def generator(self, *names: str) -> np.random.Generator:
        """A random generator seeded by the data set, the seed and these names, and nothing else.

        All methods see the same permutations, and adding or removing a method changes no other
        result.
        """
        text = " ".join((self.dataset, str(self.seed), *names))
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16]))


class Protocol(_Strict):
    """The content of a protocol file."""

    model: Model
    budget: Budget
    splits: dict[str, Split]
    methods: dict[str, Method]
    datasets: dict[str, Data]
    artefacts: dict[str, Artefact]
    quick: Quick

    def model_post_init(self, _: Any) -> None:
        """Check that all names exist and that options fit together."""
        for name, split in self.splits.items():
            outer = self.splits.get(split.inside or name)
            if outer is None or (split.inside and outer.train is None):
                raise ValueError(
                    f"splits.{name}.inside: there is no splits.{split.inside} with a train share"
                )
        for name, dataset in self.datasets.items():
            if name not in CATALOGUE:
                raise ValueError(
                    f"datasets.{name}: there is no such data set (`drolearn datasets` lists all)"
                )
            if CATALOGUE[name].task != "classification":
                raise ValueError(f"datasets.{name}: the methods need a data set with two classes")
            if (dataset.stands_for or name) not in self.datasets:
                raise ValueError(
                    f"datasets.{name}.stands_for: there is no datasets.{dataset.stands_for}"
                )
        for name, artefact in self.artefacts.items():
            references = [
                ("methods", artefact.methods, self.methods),
                ("datasets", artefact.datasets, self.datasets),
                ("splits", [artefact.split], self.splits),
            ]
            for section, used, known in references:
                for missing in (word for word in used if word not in known):
                    raise ValueError(f"artefacts.{name}: there is no {section}.{missing}")
            generated = artefact.datasets == ["text_like"]
            if bool(artefact.sizes) != generated or bool(artefact.tests) != generated:
                raise ValueError(
                    f"artefacts.{name}: sizes and tests are required with datasets = "
                    f"['text_like'] and not accepted with others"
                )
            if self.splits[artefact.split].train is None and not generated:
                raise ValueError(
                    f"artefacts.{name}: splits.{artefact.split} has no train share, which is "
                    f"required with datasets other than ['text_like']"
                )
            if artefact.kind == "scaling" and not artefact.targets:
                raise ValueError(f"artefacts.{name}: targets are required with kind = 'scaling'")

    def hurried(self, datasets: Iterable[str] = ()) -> Protocol:
        """The protocol with the numbers of [quick], and its data sets unless some are given."""
        quick = self.quick
        kept = set(datasets) or set(quick.datasets)
        samples = {"samples": quick.samples}
        budget = self.budget.model_copy(update=samples)
        splits = {
            name: split.model_copy(update={"seeds": min(split.seeds, quick.seeds)})
            for name, split in self.splits.items()
        }
        search = {"samples": quick.search_samples, "folds": quick.folds}
        methods = {
            name: method.model_copy(update=search) if isinstance(method, Search) else method
            for name, method in self.methods.items()
        }
        artefacts = {}
        for name, artefact in self.artefacts.items():
            update: dict[str, Any] = {"samples": None}
            if not artefact.sizes:
                update["datasets"] = [d for d in artefact.datasets if d in kept]
            else:
                sizes = quick.sizes[-len(artefact.sizes) :]
                update |= {"sizes": sizes, "tests": quick.tests}
            artefacts[name] = artefact.model_copy(update=update)
        update = {"budget": budget, "splits": splits, "methods": methods, "artefacts": artefacts}
        return self.model_copy(update=update)

    def narrowed(self, datasets: Iterable[str] | None, seeds: int | None) -> Protocol:
        """The protocol with these data sets only, and with this number of seeds."""
        update: dict[str, Any] = {}
        if datasets:
            kept = set(datasets)
            update["artefacts"] = {
                name: artefact.model_copy(
                    update={"datasets": [d for d in artefact.datasets if d in kept]}
                )
                for name, artefact in self.artefacts.items()
            }
        if seeds:
            update["splits"] = {
                name: split.model_copy(update={"seeds": seeds})
                for name, split in self.splits.items()
            }
        return self.model_copy(update=update)

    def runs(self, name: str) -> list[Run]:
        """The runs of an artefact, ordered by seed."""
        artefact = self.artefacts[name]
        runs = [
            self._run(artefact, dataset, method, rho, seed, rows, *variant)
            for seed in range(self.splits[artefact.split].seeds)
            for dataset in artefact.datasets
            for rho in artefact.rho
            for method in artefact.methods
            for rows in artefact.sizes or [0]
            for variant in self._variants(artefact, dataset)
        ]
        return list({run.key: run for run in runs}.values())

    def _variants(self, artefact: Artefact, dataset: str) -> list[tuple[str, bool, float | None]]:
        """Scaling, intercept and inflation (None: that of the method), one changed at a time."""
        scaling, intercept = self.datasets[dataset].scaling, self.model.intercept
        return [
            (scaling, intercept, None),
            *((other, intercept, None) for other in artefact.scalings),
            *((scaling, other, None) for other in artefact.intercepts),
            *((scaling, intercept, other) for other in artefact.inflations),
        ]

    def _run(
        self,
        artefact: Artefact,
        dataset: str,
        method: str,
        rho: float,
        seed: int,
        rows: int,
        scaling: str,
        intercept: bool,
        inflation: float | None,
    ) -> Run:
        split = self.splits[artefact.split]
        settings = self.methods[method]
        if isinstance(settings, Search):
            rho = 0.0  # the search does not depend on the radius
        if isinstance(settings, Draws) and inflation is not None:
            settings = settings.model_copy(update={"inflation": inflation})
        budget = self.budget
        if artefact.samples is not None:
            budget = budget.model_copy(update={"samples": artefact.samples, "passes": math.inf})
        if artefact.looks_per_decade is not None:
            budget = budget.model_copy(update={"looks_per_decade": artefact.looks_per_decade})
        return Run(
            dataset=dataset,
            method=method,
            rho=rho,
            split=artefact.split,
            seed=seed,
            scaling=scaling,
            intercept=intercept or isinstance(settings, Default | Estimator),
            train=split.train or 0.0,
            inside=(self.splits[split.inside].train or 1.0) if split.inside else 1.0,
            rows=rows,
            documents=max(artefact.sizes) + (artefact.tests or 0) if artefact.sizes else 0,
            tests=artefact.tests or 0,
            stop_at=min(artefact.targets, default=0.0),
            model=self.model.model_dump(exclude={"intercept"}),
            budget=budget.model_dump() if isinstance(settings, Draws | Search | Library) else {},
            settings=settings.model_dump(exclude={"label", "colour"}),
        )


def read_protocol(path: str | os.PathLike[str] | None = None) -> Protocol:
    """Read a protocol file, by default the one of the paper, which is part of the package."""
    source = Path(path) if path else resources.files("drolearn.paper") / "paper.toml"
    try:
        return Protocol.model_validate(tomllib.loads(source.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(
            f"{source} cannot be read as TOML ({error}): fix it or give another file."
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        unknown = first["type"] == "extra_forbidden"
        reason = "unknown key" if unknown else first["msg"].removeprefix("Value error, ")
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ValueError(
            f"{source}: {at + ': ' if at else ''}{reason}{more}; fix the file."
        ) from error
