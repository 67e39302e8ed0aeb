"""Solvers as objects with settings."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from drolearn import FSG, GSSG, LBFGS, PSSG, SGD, Exact, Newton, RobustClassifier


@pytest.mark.parametrize("solver", ["gssg", "pssg", "sgd", "fsg", "gssg-anchor", "lbfgs"])
def test_all_solvers_fit_by_name(two_classes, solver):
    X, y = two_classes
    clf = RobustClassifier(rho=0.1, solver=solver, tol=None, max_iter=30, random_state=0).fit(X, y)
    best = RobustClassifier(rho=0.1).fit(X, y)
    assert clf.robust_loss_ <= 1.1 * best.robust_loss_
    assert clf.score(X, y) > 0.7


@pytest.mark.parametrize(
    "solver",
    [Exact(), LBFGS(), Newton(), GSSG(32), GSSG(anchor=True), PSSG(rate=1.01), FSG(), SGD(16)],
    ids=repr,
)
def test_solver_objects(two_classes, solver):
    """They can be cloned, pickled, set by name and printed; fit does not write to them."""
    X, y = two_classes
    before = solver.get_params()
    clf = RobustClassifier(solver=solver, tol=None, max_iter=5, random_state=0).fit(X, y)
    assert solver.get_params() == before
    assert clf.solver is solver
    copy = clone(clf)
    assert copy.solver is not solver
    assert copy.solver == solver
    for other in (copy, pickle.loads(pickle.dumps(clone(clf)))):
        np.testing.assert_array_equal(other.fit(X, y).coef_, clf.coef_)
    assert eval(repr(solver)) == solver
    with pytest.raises(ValueError, match=f"{type(solver).__name__} has no setting 'batchsize'"):
        copy.set_params(solver__batchsize=3)


def test_grid_search_over_settings_of_the_solver(two_classes):
    X, y = two_classes
    model = RobustClassifier(solver=GSSG(), tol=None, max_iter=3, random_state=0)
    search = GridSearchCV(model, {"solver__batch_size": [8, 64]}, cv=2).fit(X, y)
    assert search.best_estimator_.solver.batch_size in (8, 64)
    assert model.solver == GSSG()
    by_name = RobustClassifier(solver="gssg")
    with pytest.raises(ValueError, match=r"'solver__batch_size' needs a solver object"):
        by_name.set_params(solver__batch_size=8)
    assert by_name.set_params(solver=GSSG(), solver__batch_size=8).solver == GSSG(8)


def test_the_same_seed_gives_the_same_bits(two_classes):
    X, y = two_classes
    one, two = (
        RobustClassifier(solver="gssg", tol=None, max_iter=5, random_state=7, n_jobs=n).fit(X, y)
        for n in (None, 2)
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)
