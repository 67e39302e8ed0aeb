"""Convert fitted models to ONNX with skl2onnx.

After :func:`register`, ``skl2onnx.to_onnx`` converts drolearn's estimators, alone or in pipelines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._estimators.classification import RobustClassifier
from drolearn._estimators.classifier_cv import RobustClassifierCV
from drolearn._estimators.regression import RobustRegressor
from drolearn._estimators.regressor_cv import RobustRegressorCV

__all__ = ["register"]

# Options of scikit-learn's linear classifiers in skl2onnx, with the same meaning.
_OPTIONS = {
    "zipmap": [True, False, "columns"],
    "nocl": [True, False],
    "output_class_labels": [False, True],
    "raw_scores": [True, False],
}


def register() -> None:
    """Make skl2onnx convert drolearn's estimators.

    Call it once before ``skl2onnx.to_onnx(model, X)``.  The converted model computes in float64 if
    X is float64, else in float32.  onnxruntime makes dictionaries of probabilities, the default of
    skl2onnx, from float32 only: pass ``options={"zipmap": False}`` for arrays.  Labels are strings
    or integers in ONNX: Boolean labels become 0 and 1.  Losses without probabilities give the
    scores of both classes instead, as ``LinearSVC`` does.

    Raises
    ------
    ImportError
        If skl2onnx is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import skl2onnx
    >>> from drolearn import RobustRegressor
    >>> from drolearn.onnx import register
    >>> register()
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> model = RobustRegressor(l2=0).fit(X, [1.0, 2.0, 3.0])
    >>> [node.op_type for node in skl2onnx.to_onnx(model, X).graph.node]
    ['MatMul', 'Add']
    """
    try:
        from skl2onnx import update_registered_converter
        from skl2onnx.common.shape_calculator import (
            calculate_linear_classifier_output_shapes,
            calculate_linear_regressor_output_shapes,
        )
    except ImportError:
        raise ImportError(
            "Conversion to ONNX needs skl2onnx. Install it with pip install 'drolearn[onnx]'."
        ) from None
    for cls in (RobustClassifier, RobustClassifierCV):
        update_registered_converter(
            cls,
            f"Drolearn{cls.__name__}",
            calculate_linear_classifier_output_shapes,
            _convert_classifier,
            options=_OPTIONS,
        )
    for cls in (RobustRegressor, RobustRegressorCV):
        update_registered_converter(
            cls,
            f"Drolearn{cls.__name__}",
            calculate_linear_regressor_output_shapes,
            _convert_regressor,
        )


class _Graph:
    """Nodes for one estimator: operators of ONNX applied to named arrays."""

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        from onnx import TensorProto
        from skl2onnx.common.data_types import DoubleTensorType

        self.scope, self.container = scope, container
        double = isinstance(operator.inputs[0].type, DoubleTensorType)
        self.type = TensorProto.DOUBLE if double else TensorProto.FLOAT

    def apply(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """The name of the result of an operator, which is `out` if that is given."""
        out = out or self.scope.get_unique_variable_name(kind.lower())
        name = self.scope.get_unique_operator_name(kind)
        self.container.add_node(kind, list(inputs), out, name=name, **attributes)
        return out

    def numbers(self, name: str, values: NDArray[Any], kind: int | None = None) -> str:
        """The name of a constant, of the type of the rows unless another is given."""
        unique = self.scope.get_unique_variable_name(name)
        kind = self.type if kind is None else kind
        self.container.add_initializer(unique, kind, values.shape, values.ravel().tolist())
        return unique

    def scores(self, model: Any, rows: Any, out: str = "") -> str:
        """X w + c: a matrix with one column, or one for each of more than two classes."""
        from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

        name = rows.full_name
        if not isinstance(rows.type, DoubleTensorType | FloatTensorType):
            name = self.apply("Cast", name, to=self.type)
        coef = self.numbers("coef", np.atleast_2d(model.coef_).T)
        intercept = self.numbers("intercept", np.atleast_1d(model.intercept_))
        return self.apply("Add", self.apply("MatMul", name, coef), intercept, out=out)


def _convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a regression, whose result is a matrix with one column."""
    graph = _Graph(scope, operator, container)
    out = operator.outputs[0].full_name
    graph.scores(operator.raw_operator, operator.inputs[0], out)


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a classifier, whose results are labels and probabilities."""
    from onnx import TensorProto

    graph, model = _Graph(scope, operator, container), operator.raw_operator
    label, proba = (output.full_name for output in operator.outputs)
    scores = graph.scores(model, operator.inputs[0])
    raw = container.get_options(model, {"raw_scores": False})["raw_scores"]
    raw = raw or not hasattr(model, "predict_proba")
    if model.classes_.size == 2:
        both = graph.apply("Concat", graph.apply("Neg", scores), scores, axis=1)
        graph.apply("Identity" if raw else "Sigmoid", both, out=proba)
        positive = graph.apply("Greater", scores, graph.numbers("zero", np.zeros(1)))
        index = graph.apply("Cast", positive, to=TensorProto.INT64)
        index = graph.apply(
            "Reshape", index, graph.numbers("flat", np.array([-1]), TensorProto.INT64)
        )
    else:
        if raw:
            graph.apply("Identity", scores, out=proba)
        else:
            graph.apply("Softmax", scores, out=proba, axis=1)
        index = graph.apply("ArgMax", scores, axis=1, keepdims=0)
    graph.apply("Gather", _classes(graph, operator), index, out=label, axis=0)


def _classes(graph: _Graph, operator: Any) -> str:
    """The name of the array of labels: strings or integers."""
    from onnx import TensorProto
    from skl2onnx.common.utils_classifier import get_label_classes

    labels = np.asarray(get_label_classes(graph.scope, operator.raw_operator))
    if all(isinstance(each, str) for each in labels.tolist()):
        encoded = np.array([each.encode() for each in labels.tolist()], dtype=object)
        return graph.numbers("classes", encoded, TensorProto.STRING)
    return graph.numbers("classes", labels.astype(np.int64), TensorProto.INT64)
