# Written by `make stubs`.
"""
The compiled core of drolearn: worst cases, losses, passes over rows, descent.
"""

from collections.abc import Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray
from typing_extensions import CapsuleType

CHUNK: int = 4096

OK: int = 0

NOT_FINITE: int = 1

NOT_SOLVED: int = 2

def target() -> str:
    """
    The target that the kernels in use are compiled for: "portable", "avx2" or "avx512".
    """

class Divergence:
    """The compiled form of a divergence."""

    def __init__(
        self,
        family: str,
        parameter: float,
        origin: float,
        phi_zero: float,
        curvature: float,
        has_linear_pieces: bool,
        custom: tuple | None = None,
    ) -> None: ...
    def phi(self, s: float) -> float:
        """φ(s)."""

class Loss:
    """The compiled form of a loss of one example."""

    def __init__(
        self, kind: str, residual: bool, width: float, custom: tuple | None = None
    ) -> None: ...

class Plan:
    """The compiled form of a method of drawing rows."""

    def __init__(
        self,
        kind: str,
        n: int,
        growth: tuple[int, float],
        radius: tuple[float, float, float],
        warm: float,
        levels: tuple[
            Annotated[
                NDArray[numpy.int64],
                dict(shape=(None, None), order="C", device="cpu", writable=False),
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
        ],
        groups: tuple[
            Annotated[
                NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
        ]
        | None = None,
    ) -> None: ...
    @property
    def cumulative(self) -> list[float]:
        """P(correction at level ≤ k), k = 1, 2, …"""

    @property
    def coefficients(self) -> list[float]:
        """1 / P(level k)."""

class Rows:
    """Rows of data, used without a copy."""

    @overload
    def __init__(
        self, X: Annotated[NDArray, dict(shape=(None, None), device="cpu", writable=False)]
    ) -> None: ...
    @overload
    def __init__(
        self,
        data: Annotated[NDArray, dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: Annotated[NDArray, dict(shape=(None,), order="C", device="cpu", writable=False)],
        indptr: Annotated[NDArray, dict(shape=(None,), order="C", device="cpu", writable=False)],
        columns: int,
    ) -> None: ...
    def scores(
        self,
        theta: Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        f: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
        threads: int = 1,
    ) -> None:
        """Write the scores X w + c of all rows."""

    def gradient(
        self,
        p: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None,
        slope: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        threads: int = 1,
    ) -> None:
        """Write the sum of p · slope · (x, 1)."""

    def moments(
        self,
        indices: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        base: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None,
        mean: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None:
        """Write sum, sum of squares and largest absolute value of each column."""

    def scaled(
        self,
        scaling: tuple[
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
        ],
        first: int,
        root: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None:
        """Write root · ((x − mean) · scale, 1)."""

    def gram(
        self,
        h: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        scale: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None:
        """Add the lower triangle of the weighted Gram matrix of sparse rows."""

    def squares(
        self,
        h: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        some: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> None:
        """Write Σ h x² of some sparse rows."""

    def coordinate_sweep(
        self,
        hessian: tuple[
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
        ],
        low_rank: tuple[
            Annotated[
                NDArray[numpy.float64],
                dict(shape=(None, None), order="C", device="cpu", writable=False),
            ],
            Annotated[
                NDArray[numpy.float64],
                dict(shape=(None, None), order="C", device="cpu", writable=False),
            ],
        ],
        function: tuple[
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
        ],
        coordinates: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        at: tuple[
            Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
            Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
            Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
        ],
    ) -> float:
        """
        Lower a quadratic function with an l1 penalty, whose coordinates are these sparse rows: change step, bent and sums, return a bound of the decrease.
        """

def solve(
    divergence: Divergence,
    rho: float,
    z: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    base: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ]
    | None,
    out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    threads: int = 1,
) -> tuple:
    """
    Write worst-case weights; return status, value, achieved, alpha, lam, gap, sweeps.
    """

def survey(
    z: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    base: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ]
    | None,
    parts: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None:
    """Write the survey of each chunk of losses."""

def sample_stride(divergence: Divergence, n: int) -> int:
    """The stride of the subsample for the first guess; 0 for none."""

class Search:
    """A worst case whose sweeps the caller runs."""

    @overload
    def __init__(
        self,
        divergence: Divergence,
        rho: float,
        n: int,
        surveys: Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        guess: tuple[float, float],
    ) -> None: ...
    @overload
    def __init__(self, divergence: Divergence, state: bytes) -> None: ...
    @property
    def state(self) -> bytes:
        """The complete state between two sweeps."""

    @property
    def done(self) -> bool: ...
    def sweep(
        self,
        z: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        base: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
        parts: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None:
        """Write the sums of each chunk of a block."""

    def join(
        self,
        parts: Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        total: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> None:
        """
        Write the sum of the sums of some chunks, which `advance` takes in their place.
        """

    def advance(
        self,
        parts: Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
    ) -> None:
        """Prepare the next sweep from the sums of all chunks in order."""

    def answer(self) -> tuple: ...

def signed_weights(
    divergence: Divergence,
    z: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    base: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ]
    | None,
    blocks: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    groups: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ]
    | None = None,
) -> int:
    """
    Write the sum over blocks of coefficient × worst-case weights; return a status.
    """

def second_order(
    divergence: Divergence,
    losses: tuple[
        Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None,
    ],
    p: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    multipliers: tuple[float, float],
    derivatives: tuple[
        Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int = 1,
) -> tuple:
    """Write the parts of the Hessian of the robust loss."""

def follow(
    divergence: Divergence,
    t: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    cap: float,
    s: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    rise: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """Write the inverse of φ' and its slope."""

def weigh(
    divergence: Divergence,
    z: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    base: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    alpha: float,
    p: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
) -> tuple:
    """Write the weights for a given alpha; return lambda and the divergence."""

def sort_down(
    z: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """Write losses in decreasing order."""

def tail_sums(
    z: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    base: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None:
    """Write Σ b (z − η)₊ʲ, j = 0 ... 4, at each of sorted losses."""

def coordinate_descent(
    hessian: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    penalty: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    start: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    step: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    slope: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    sweeps: int,
    tolerance: float,
) -> int:
    """
    Lower a quadratic function with an l1 penalty: change the step and the slope, return the number of sweeps.
    """

def elementary(
    name: str,
    x: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    portable: bool = False,
) -> None:
    """Write an elementary function of x, for tests."""

def losses(
    loss: Loss,
    f: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    y: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    z: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    slope: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    threads: int = 1,
) -> None:
    """Write losses and their slopes in the scores."""

def bends(
    loss: Loss,
    f: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    y: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    threads: int = 1,
) -> None:
    """Write second derivatives of losses in the scores."""

def draw(generator: CapsuleType, plan: Plan, step: float) -> tuple:
    """Return rows and blocks of one step."""

def draw_level(generator: CapsuleType, plan: Plan, level: int) -> tuple:
    """Return a base block, or a correction not divided by its probability."""

class Tally:
    """The state of a descent besides the model."""

    def __init__(self) -> None: ...
    @property
    def step(self) -> float: ...
    @step.setter
    def step(self, arg: float, /) -> None: ...
    @property
    def samples(self) -> float: ...
    @samples.setter
    def samples(self, arg: float, /) -> None: ...
    @property
    def base_norm(self) -> float: ...
    @base_norm.setter
    def base_norm(self, arg: float, /) -> None: ...
    @property
    def averaged(self) -> float: ...
    @averaged.setter
    def averaged(self, arg: float, /) -> None: ...
    @property
    def corrections(self) -> float: ...
    @corrections.setter
    def corrections(self, arg: float, /) -> None: ...
    @property
    def clipped(self) -> float: ...
    @clipped.setter
    def clipped(self, arg: float, /) -> None: ...

class Descent:
    """The loop of the stochastic solvers."""

    def __init__(
        self,
        objective: tuple[Loss, Divergence],
        l2: float,
        plan: Plan,
        rows: Rows,
        labels: tuple[
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ]
            | None,
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ]
            | None,
        ],
        columns: tuple[
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
        ],
    ) -> None: ...
    def run(
        self,
        generator: CapsuleType,
        model: tuple[
            Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
            Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        ],
        anchor: tuple[
            Annotated[
                NDArray[numpy.float64],
                dict(shape=(None, None), order="C", device="cpu", writable=False),
            ],
            Annotated[
                NDArray[numpy.float64],
                dict(shape=(None, None), order="C", device="cpu", writable=False),
            ],
        ]
        | None,
        steps: tuple[
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            float,
            float,
            float,
        ],
        tally: Tally,
    ) -> int:
        """Make steps; return a status."""

    def follow(
        self,
        draws: Sequence[
            tuple[
                Annotated[
                    NDArray[numpy.int64],
                    dict(shape=(None,), order="C", device="cpu", writable=False),
                ],
                Annotated[
                    NDArray[numpy.float64],
                    dict(shape=(None, None), order="C", device="cpu", writable=False),
                ],
                int,
            ]
        ],
        model: tuple[
            Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
            Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        ],
        anchor: tuple[
            Annotated[
                NDArray[numpy.float64],
                dict(shape=(None, None), order="C", device="cpu", writable=False),
            ],
            Annotated[
                NDArray[numpy.float64],
                dict(shape=(None, None), order="C", device="cpu", writable=False),
            ],
        ]
        | None,
        steps: tuple[
            Annotated[
                NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
            ],
            float,
            float,
            float,
        ],
        tally: Tally,
    ) -> int:
        """Make steps with given draws; return a status."""

def step_along(
    gradients: tuple[
        Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ]
        | None,
    ],
    rows: tuple[int, int],
    drift: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ]
    | None,
    columns: tuple[
        Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        float,
    ],
    model: tuple[
        Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ],
    steps: tuple[
        Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        float,
        float,
        float,
    ],
    tally: Tally,
) -> int:
    """Make one step along given gradients; return a status."""
