"""Losses of single rows: values, types of labels, and an error for every wrong input."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    zero_one_loss,
)

import drolearn
from drolearn import (
    absolute_losses,
    brier_losses,
    log_losses,
    metrics,
    squared_losses,
    worst_case,
    zero_one_losses,
)
from drolearn.loss import as_loss

NAN, INF = math.nan, math.inf
EVEN = [[0.5, 0.5], [0.5, 0.5]]


def assert_refused(match, function, *arguments, **options):
    """The error is one line and matches."""
    with pytest.raises(ValueError, match=match) as caught:
        function(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("The '")


def test_public_names():
    names = "absolute_losses brier_losses log_losses squared_losses zero_one_losses"
    assert metrics.__all__ == names.split()
    for name in metrics.__all__:
        assert getattr(drolearn, name) is getattr(metrics, name)
        assert name in drolearn.__all__


def test_the_module_imports_no_scikit_learn():
    program = "import sys, drolearn.metrics; print('sklearn' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "False", run.stderr


# -- log losses ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(three_classes):
    X, y = three_classes
    return LogisticRegression(max_iter=1000).fit(X, np.array(["low", "mid", "high"])[y])


@pytest.fixture
def rows(three_classes, model):
    """Probabilities of three classes and labels that are strings."""
    X, y = three_classes
    return model.predict_proba(X), np.array(["low", "mid", "high"])[y]


def test_the_mean_is_that_of_scikit_learn(rows, model):
    proba, y = rows
    losses = log_losses(proba, y, model.classes_)
    assert losses.dtype == np.float64
    assert losses.shape == y.shape
    assert abs(losses.mean() - log_loss(y, proba, labels=model.classes_)) < 1e-12
    single = [log_loss(y[[i]], proba[[i]], labels=model.classes_) for i in range(50)]
    np.testing.assert_allclose(losses[:50], single, rtol=0, atol=1e-12)


def test_two_classes_as_matrix_or_vector(two_classes):
    X, y = two_classes
    proba = LogisticRegression().fit(X, y).predict_proba(X)
    losses = log_losses(proba, y)
    assert abs(losses.mean() - log_loss(y, proba)) < 1e-12
    np.testing.assert_allclose(log_losses(proba[:, 1], y), losses, rtol=0, atol=1e-12)
    np.testing.assert_allclose(log_losses(proba[:, 0], y, ["yes", "no"]), losses, atol=1e-12)


def test_they_are_the_losses_of_the_estimators(three_classes, two_classes):
    for X, y in (three_classes, two_classes):
        clf = drolearn.RobustClassifier(rho=0.1).fit(X, y)
        losses = log_losses(clf.predict_proba(X), y, clf.classes_)
        np.testing.assert_allclose(losses, clf.losses(X, y), atol=1e-9)
        assert abs(worst_case(losses, rho=0.1).value - clf.robust_loss_) < 1e-9


def test_classes_in_any_order(rows, model):
    proba, y = rows
    expected = log_losses(proba, y)  # sorted by default
    np.testing.assert_array_equal(log_losses(proba, y, model.classes_), expected)
    order = [2, 0, 1]
    np.testing.assert_array_equal(log_losses(proba[:, order], y, model.classes_[order]), expected)


def test_rows_of_some_of_the_classes(rows, model):
    proba, y = rows
    some = y != "mid"
    expected = log_losses(proba, y)[some]
    found = log_losses(proba[some], y[some], list(model.classes_))
    np.testing.assert_array_equal(found, expected)
    assert log_losses([[0.25, 0.75]], ["b"], ["a", "b"])[0] == -math.log(0.75)
    assert log_losses([0.25], [0], [0, 1])[0] == -math.log(0.75)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([0, 1, 1], [0, 1]),
        ([False, True, True], [False, True]),
        ([False, True, True], [0, 1]),
        ([0.0, 1.0, 1.0], [0, 1]),
        (["a", "b", "b"], ["a", "b"]),
        (("a", "b", "b"), ("a", "b")),
        (np.array(["a", "b", "b"]), np.array(["a", "b"], dtype=object)),
        ([-1, 1, 1], np.array([-1, 1], dtype=np.int8)),
        ([b"a", b"b", b"b"], [b"a", b"b"]),
        (pd.Series(["a", "b", "b"], index=[9, 7, 5]), pd.Index(["a", "b"])),
        (pd.Series(["a", "b", "b"], dtype="category"), ["a", "b"]),
        (pd.Series(["a", "b", "b"], dtype="string"), ["a", "b"]),
        (pd.Series([3, 4, 4], dtype="Int64"), [3, 4]),
    ],
)
def test_labels_of_any_type(y, classes):
    proba, expected = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], -np.log([0.9, 0.8, 0.4])
    np.testing.assert_array_equal(log_losses(proba, y, classes), expected)
    np.testing.assert_array_equal(log_losses(proba, y), expected)
    np.testing.assert_array_equal(log_losses(pd.DataFrame(proba), y), expected)
    np.testing.assert_array_equal(log_losses(pd.Series([0.1, 0.8, 0.4]), y, classes), expected)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int64, bool, object]
)
def test_probabilities_of_zero_get_a_floor(dtype):
    proba = np.array([[1, 0], [1, 0]], dtype=dtype)
    precision = dtype if dtype in (np.float16, np.float32) else np.float64
    largest = -math.log(float(np.finfo(precision).eps))
    for losses in (log_losses(proba, [0, 1]), log_losses(proba[:, 1], [0, 1])):
        np.testing.assert_array_equal(losses, [0.0, largest])
        assert not np.signbit(losses).any()
    assert math.isfinite(worst_case(log_losses(proba, [0, 1]), rho=1).value)


def test_the_floor_is_that_of_scikit_learn(two_classes):
    X, y = two_classes
    proba = RandomForestClassifier(5, random_state=0).fit(X[:300], y[:300]).predict_proba(X)
    assert (proba == 0).any()
    assert abs(log_losses(proba, y).mean() - log_loss(y, proba)) < 1e-12


def test_float32(rows):
    proba, y = rows
    single = proba.astype(np.float32)
    losses = log_losses(single, y)
    assert losses.dtype == np.float64
    np.testing.assert_array_equal(losses, log_losses(single.astype(np.float64), y))
    assert abs(losses.mean() - log_loss(y, single)) < 1e-6
    half = log_losses(proba.astype(np.float16), y)
    np.testing.assert_allclose(half, losses, rtol=0.01, atol=0.01)


def test_rounding_errors_are_accepted():
    assert log_losses([[1.0 + 1e-7, -1e-7]], [0], [0, 1])[0] == 0.0
    assert log_losses([[1.0 + 1e-7, -1e-7]], [1], [0, 1])[0] == -math.log(2.0**-52)
    single = np.array([[0.5001, 0.5001]], dtype=np.float32)
    assert log_losses(single, [1], [0, 1])[0] == pytest.approx(-math.log(0.5001))


def test_a_single_class():
    np.testing.assert_array_equal(log_losses([[1.0], [1.0]], ["a", "a"]), [0.0, 0.0])


def test_inputs_are_not_changed(rows):
    proba, y = rows
    before = proba.copy()
    proba.flags.writeable = y.flags.writeable = False
    log_losses(proba, y)
    np.testing.assert_array_equal(proba, before)


@pytest.mark.parametrize(
    ("proba", "match"),
    [
        ([[0.5, 0.5], [NAN, 0.5]], "'proba' .* finite numbers. Got nan in row 1 instead"),
        ([[0.5, 0.5], [0.5, -INF]], "'proba' .* finite numbers. Got -inf in row 1 instead"),
        ([[0.5, 0.5], [2.5, -1.5]], "as predict_proba returns .* Got 2.5 in row 1 instead"),
        ([[0.5, 0.5], [1.00001, -0.00001]], "from 0 to 1.* Got 1.00001 in row 1 instead"),
        ([0.5, -2.25], "not scores or logarithms. Got -2.25 in row 1 instead"),
        ([[0.5, 0.5], [0.5, 0.4]], "rows that sum to 1. Got a sum of 0.9 in row 1 instead"),
        ([[0.5, 0.5], [0.5, 0.50001]], "rows that sum to 1. Got a sum of 1.00001 in row 1"),
        ([], "'proba' .* at least one row. Got none"),
        (np.empty((0, 2)), "'proba' .* at least one row. Got none"),
        ([[], []], "'proba' .* at least one row. Got none"),
        (0.5, r"'proba' .* shape \(\) instead"),
        ([EVEN], r"one column for each class. Got an array of shape \(1, 2, 2\) instead"),
        ([[0.2], [0.8]], r"for each of 2 classes. Got one column instead; pass proba\[:, 0\]"),
        ([["a", "b"]], "'proba' .* real numbers. Got an array of type"),
        ([[0.5, None], [0.5, 0.5]], "'proba' .* real numbers. Got list instead"),
        ([[0.5], [0.5, 0.5]], "'proba' .* real numbers. Got list instead"),
        (None, "'proba' .* real numbers. Got NoneType instead"),
        (sp.csr_matrix(EVEN), "'proba' .* real numbers. Got csr_matrix instead"),
        (np.ma.masked_less(EVEN, 0.6), "'proba' .* masked entries. Got 4"),
    ],
)
def test_wrong_probabilities(proba, match):
    assert_refused(match, log_losses, proba, [0, 1])


def test_scores_of_a_model_are_refused(three_classes, two_classes):
    for X, y in (three_classes, two_classes):
        model = LogisticRegression(max_iter=1000).fit(X, y)
        for wrong in (model.decision_function(X), model.predict_log_proba(X)):
            assert_refused("'proba' .* not scores or logarithms", log_losses, wrong, y)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        ([0], "'y' .* one label for each of the 2 rows of 'proba'. Got 1 instead"),
        ([0, 1, 0], "'y' .* one label for each of the 2 rows of 'proba'. Got 3 instead"),
        ([], "'y' .* one label for each of the 2 rows of 'proba'. Got 0 instead"),
        ([[0], [1]], r"'y' .* a vector of labels. Got an array of shape \(2, 1\) instead"),
        ([[0], [1, 2]], "'y' .* a vector of labels. Got list instead"),
        ("yes", r"'y' .* a vector of labels. Got an array of shape \(\) instead"),
        ([0.0, NAN], "'y' .* missing values. Got 1 of them"),
        (["a", None], "'y' .* missing values. Got 1 of them"),
        (["a", NAN], "'y' .* missing values. Got 1 of them"),
        (pd.Series([0, None], dtype="Int64"), "'y' .* missing values. Got 1 of them"),
        (["a", 1], "'y' .* labels of one type"),
        (np.ma.masked_equal([0, 1], 1), "'y' .* masked entries. Got 1 of them"),
    ],
)
def test_wrong_labels(y, match):
    assert_refused(match, log_losses, EVEN, y)
    assert_refused(match, log_losses, EVEN, y, [0, 1])


@pytest.mark.parametrize(
    ("y", "classes", "match"),
    [
        ([0, 2], [0, 1], "'y' .* labels of classes: 0, 1. Got 2 instead.$"),
        (["ham", "sapm"], ["ham", "spam"], "'ham', 'spam'. Got 'sapm' instead. Did you mean 'spam"),
        (["0", "1"], [0, 1], "'y' .* labels of classes: 0, 1. Got '0' instead"),
        ([0, 1], ["0", "1"], "'y' .* labels of classes: '0', '1'. Got 0 instead"),
        ([0, 1], [1, 1], "'classes' .* different labels. Got 1 twice"),
        ([0, 1], [0, 1, 2], "'classes' .* each of the 2 columns of proba. Got 3 labels instead"),
        ([0, 1], [0], "'classes' .* each of the 2 columns of proba. Got 1 labels? instead"),
        ([0, 1], [], "'classes' .* each of the 2 columns of proba. Got 0 labels instead"),
        ([0, 1], [[0, 1]], r"'classes' .* vector of labels. Got an array of shape \(1, 2\)"),
        ([0, 1], ["a", None], "'classes' .* missing values. Got 1 of them"),
        ([1, 1], None, "'classes' .* 2 columns of proba, .* y holds 1 .* classes=model.classes_"),
    ],
)
def test_wrong_classes(y, classes, match):
    assert_refused(match, log_losses, EVEN, y, classes)


def test_more_classes_than_labels():
    match = r"name the 3 columns of proba, because y holds 2 .* pass classes=model\.classes_\.$"
    assert_refused(match, log_losses, [[0.2, 0.3, 0.5]] * 2, ["a", "c"])
    match = r"name the two classes \(proba is a vector\), because y holds 3 different labels"
    assert_refused(match, log_losses, [0.5] * 3, [0, 1, 2])
    match = r"each of the two classes \(proba is a vector\). Got 3 labels instead"
    assert_refused(match, log_losses, [0.5] * 3, [0, 1, 2], [0, 1, 2])
    match = "labels of classes: 0, 1, 2, 3, 4, …. Got 9 instead"
    assert_refused(match, log_losses, [[0.125] * 8], [9], range(8))


# -- squared losses ------------------------------------------------------------------------------


def test_squared_losses_are_half_of_the_squared_error(regression):
    X, y = regression
    prediction = X.sum(axis=1)
    losses = squared_losses(prediction, y)
    assert losses.dtype == np.float64
    half = mean_squared_error(y, prediction) / 2
    assert losses.mean() == pytest.approx(half, rel=1e-12, abs=0)
    np.testing.assert_array_equal(losses, as_loss("squared").at(prediction - y)[0])
    np.testing.assert_array_equal(squared_losses(pd.Series(prediction), list(y)), losses)
    np.testing.assert_allclose(
        squared_losses(prediction.astype(np.float32), y), losses, rtol=1e-4, atol=1e-4
    )


def test_they_are_the_losses_of_the_regressor(regression):
    X, y = regression
    model = drolearn.RobustRegressor(rho=0.1).fit(X, y)
    np.testing.assert_allclose(squared_losses(model.predict(X), y), model.losses(X, y), atol=1e-9)


def test_squared_losses_of_integers_and_extreme_numbers():
    large = np.array([200, 100], dtype=np.uint8)
    np.testing.assert_array_equal(squared_losses(large, [0, 300]), [20000.0, 20000.0])
    np.testing.assert_array_equal(squared_losses([1e300, 1e-300, 1.0], [0, 0, 1]), [INF, 0.0, 0.0])


@pytest.mark.parametrize(
    ("prediction", "y", "match"),
    [
        ([], [], "'prediction' .* at least one row. Got none"),
        ([1.0, 2.0], [1.0], "'y' .* one number for each of the 2 rows of 'prediction'. Got 1 inst"),
        ([1.0, NAN], [1.0, 2.0], "'prediction' .* finite numbers. Got nan in row 1 instead"),
        ([1.0, 2.0], [-INF, 2.0], "'y' .* finite numbers. Got -inf in row 0 instead"),
        ([[1.0], [2.0]], [1.0, 2.0], r"'prediction' .* one-dim.* Got an array of shape \(2, 1\)"),
        ([1.0, 2.0], [[1.0], [2.0]], r"'y' .* one-dim.* Got an array of shape \(2, 1\)"),
        ([1.0, 2.0], ["a", "b"], "'y' .* real numbers. Got an array of type"),
        ([1.0, None], [1.0, 2.0], "'prediction' .* real numbers. Got list instead"),
    ],
)
def test_wrong_numbers(prediction, y, match):
    assert_refused(match, squared_losses, prediction, y)


# -- Brier and absolute losses -------------------------------------------------------------------


def test_brier_losses_have_the_mean_of_scikit_learn(rows, model, two_classes):
    proba, y = rows
    losses = brier_losses(proba, y, model.classes_)
    assert losses.mean() == pytest.approx(brier_score_loss(y, proba, labels=model.classes_))
    X, y = two_classes
    proba = LogisticRegression().fit(X, y).predict_proba(X)
    losses = brier_losses(proba, y)
    assert losses.mean() == pytest.approx(
        brier_score_loss(y, proba[:, 1], pos_label=max(y.tolist()))
    )
    np.testing.assert_allclose(brier_losses(proba[:, 1], y), losses, atol=1e-15)


def test_absolute_losses_have_the_mean_of_scikit_learn():
    prediction, y = np.array([1.0, -2.0, 3.5]), np.array([2.0, 2.0, 3.5])
    np.testing.assert_array_equal(absolute_losses(prediction, y), [1.0, 4.0, 0.0])
    assert absolute_losses(prediction, y).mean() == mean_absolute_error(y, prediction)


def test_wrong_input_of_brier_and_absolute_losses():
    assert_refused("rows that sum to 1. Got a sum of 1.1", brier_losses, [[0.5, 0.6]], [0], [0, 1])
    assert_refused("probabilities from 0 to 1", brier_losses, [[-1.0, 2.0]], [0], [0, 1])
    assert_refused("only labels of classes", brier_losses, [[0.5, 0.5]], [2], [0, 1])
    assert_refused("one number for each of the 2 rows", absolute_losses, [1.0, 2.0], [1.0])
    assert_refused("finite numbers. Got nan", absolute_losses, [NAN], [1.0])


# -- zero-one losses -----------------------------------------------------------------------------


def test_zero_one_losses_have_the_mean_of_scikit_learn(three_classes, rows, model):
    X, _ = three_classes
    _, y = rows
    prediction = model.predict(X)
    losses = zero_one_losses(prediction, y)
    assert losses.dtype == np.float64
    assert abs(losses.mean() - zero_one_loss(y, prediction)) < 1e-12
    np.testing.assert_array_equal(losses, prediction != y)
    np.testing.assert_array_equal(zero_one_losses(pd.Series(prediction, index=y), y), losses)


@pytest.mark.parametrize(
    ("prediction", "y"),
    [
        ([0, 1, 1], [0, 1, 0]),
        ([False, True, True], [False, True, False]),
        ([False, True, True], [0, 1, 0]),
        ([0.0, 1.0, 1.0], np.array([0, 1, 0], dtype=np.int8)),
        (["a", "b", "b"], np.array(["a", "b", "a"], dtype=object)),
        (["a", "b", "longer"], np.array(["a", "b", "a"])),  # a label that y does not have
        (["c", "d", "d"], pd.Series(["c", "d", "c"], dtype="category")),
        ([1.5, 2.5, 2.5], [1.5, 2.5, 1.5]),
        ([7, 8, 8], pd.Series([7, 8, 7], dtype="Int64")),
    ],
)
def test_zero_one_losses_of_any_labels(prediction, y):
    np.testing.assert_array_equal(zero_one_losses(prediction, y), [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(zero_one_losses(y, y), np.zeros(3))


def test_no_prediction_is_right():
    np.testing.assert_array_equal(zero_one_losses(["c", "c"], ["a", "b"]), [1.0, 1.0])


@pytest.mark.parametrize(
    ("prediction", "y", "match"),
    [
        ([], [], "'prediction' .* at least one row. Got none"),
        ([0, 1], [0], "'y' .* one label for each of the 2 rows of 'prediction'. Got 1 instead"),
        (EVEN, [0, 1], r"'prediction' .* vector of labels. Got an array of shape \(2, 2\) instead"),
        ([0, 1], [[0], [1]], r"'y' .* vector of labels. Got an array of shape \(2, 1\) instead"),
        (["a", None], ["a", "b"], "'prediction' .* missing values. Got 1 of them"),
        ([0, 1], [0, NAN], "'y' .* missing values. Got 1 of them"),
        (["0", "1"], [0, 1], "same type as y, such as 0. Got '0' instead"),
        ([0, 1], ["a", "b"], "same type as y, such as 'a'. Got 0 instead"),
        ([0.25, 0.75], [0, 1], "labels, as predict returns .* Got 0.25 instead"),
        ([-1.5, 2.0], [-1.0, 1.0], "labels, as predict returns .* Got -1.5 instead"),
        (["a", 1], ["a", "b"], "'prediction' .* labels of one type"),
    ],
)
def test_wrong_predictions(prediction, y, match):
    assert_refused(match, zero_one_losses, prediction, y)
